"""`diff`: what `ebsim diff` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import PathLike, path_of
from easybalance_sim.api.plan_files import PlanLike, named
from easybalance_sim.api.results import Result
from easybalance_sim.plan.difference import Difference
from easybalance_sim.report import placement_words
from easybalance_sim.simulate.rollout.change import ChangeRequest, change

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("moves", "drops", "local_moves")
"""What a step does: experts that travel, slots that are given up, copies within a GPU."""
STEP = {
    "step": "Int64", "layers": "object", "moves": "Int64", "drops": "Int64", "local_moves": "Int64", "bytes": "Int64",
    "seconds": "Float64", "staging_slots": "Int64",
}  # fmt: skip
MOVE = {
    "step": "Int64", "layer": "Int64", "expert": "Int64", "from_rank": "Int64", "to_rank": "Int64",
    "slot_of_rank": "Int64", "replaces": "Int64", "path": "object",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DiffResult(Result):
    """What changes between two plans. difference: with every step, whether the report lists them or not."""

    difference: Difference

    @property
    def same(self) -> bool:
        """Whether every rank holds the same experts in the same slots. The command ends with exit 0 then."""
        return bool(self.report["same"])

    def line(self) -> str:
        """How many experts travel."""
        return placement_words.change(self.difference)

    def table(self) -> pd.DataFrame:
        """One row per step: ids of its layers, how many experts travel, slots given up, copies within a GPU, bytes,
        seconds."""
        from easybalance_sim.api.tables import typed

        rows = [{**step, **{kind: len(step[kind]) for kind in KINDS}, "layers": _ids(step)} for step in self._steps()]
        return typed(rows, STEP).set_index("step")

    def moves(self) -> pd.DataFrame:
        """One row per expert that travels, in the order of the steps; `replaces`: the expert that the slot held."""
        from easybalance_sim.api.tables import typed

        return typed([{"step": step["step"], **move} for step in self._steps() for move in step["moves"]], MOVE)

    def _steps(self) -> Sequence[dict[str, Any]]:
        steps: Sequence[dict[str, Any]] = self.difference.to_dict(steps=True)["steps"]
        return steps


def diff(
    old: PlanLike,
    new: PlanLike,
    *,
    steps: bool = False,
    staging_slots: int = 1,
    step_mb: float = 0.0,
    step_ms: float = 0.0,
    model: PathLike = "",
    profile: PathLike = "",
    output: PathLike | None = None,
) -> DiffResult:
    """Compare two plans: experts that travel, over which links, for how long, and in which steps to move them.

    steps: list every move in the report, too · staging_slots: experts that a GPU can hold beside its slots, 0 = serving
    stops for each step · step_mb, step_ms: most that a step may move and take, 0 = no limit. A file for rollout tools
    is written only to `output`. Raises `PlanError` for plans that cannot be read or compared, else `EbsimError`
    subclasses for bad options.
    """
    call, _ = begun(diff, locals())
    with named(old) as before, named(new) as after:
        request = ChangeRequest(
            old=Path(before), new=Path(after), staging_slots=staging_slots, step_mb=step_mb, step_ms=step_ms,
            model=os.fspath(model), profile=os.fspath(profile), output=path_of(output),
        )  # fmt: skip
        found = change(request)
    return DiffResult(report=found.to_dict(steps=steps), difference=found, call=call)


def _ids(step: dict[str, Any]) -> str:
    return ", ".join(map(str, sorted({one["layer"] for kind in KINDS for one in step[kind]})))
