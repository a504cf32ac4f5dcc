"""`offset` and `claim`: what `ebsim offset` does, with a trace and with a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Names, PathLike, Traces, names_of, path_of, paths_of, settings_of
from easybalance_sim.api.plan_files import PlanLike, PlanResult, file_of
from easybalance_sim.api.results import PageResult, without_file
from easybalance_sim.mechanisms.request import OffsetRequest
from easybalance_sim.mechanisms.run import offset as run
from easybalance_sim.simulate.capacity.run import UNITS
from easybalance_sim.simulate.capacity.run import run as run_claim

if TYPE_CHECKING:
    import pandas as pd

Steps = tuple[int, int | None] | None
"""Ids of the first step that takes part and of the first that does not (None = to the end); None = all."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OffsetResult(PageResult):
    """Every mechanism against rank imbalance, with what it costs."""

    def line(self) -> str:
        """What was judged."""
        judged = self.report["judged"]
        return f"{len(self.table())} mechanisms on {judged['steps']:,} steps, {judged['tokens']:,} tokens"

    def table(self) -> pd.DataFrame:
        """One row per mechanism: what it gains beside what it costs."""
        from easybalance_sim.api.tables import rows_of

        return rows_of(self.report["front"]["rows"])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClaimResult(PageResult):
    """A capacity claim, taken apart."""

    def line(self) -> str:
        """What became of it."""
        return (
            f"{self.report['title']}: claimed ×{self.report['claimed_gain']:.2f}, "
            f"×{self.report['lossless_gain']:.2f} without and ×{self.report['total_gain']:.2f} with lossy mechanisms"
        )

    def table(self) -> pd.DataFrame:
        """One row per mechanism: alone, and on top of those before it."""
        from easybalance_sim.api.tables import rows_of

        return rows_of(self.report["rungs"]).set_index("mechanism")


def offset(
    traces: Traces,
    *,
    plan: PlanLike | None = None,
    past: Traces | None = None,
    steps: Steps = None,
    past_steps: Steps = None,
    warm_up: int = 40,
    sensor_ms: float = 300.0,
    step_ms: float | None = None,
    delay: int = 1,
    controller: str = "",
    gain: float | None = None,
    cap: float | None = None,
    force: bool = False,
    part: Names = None,
    choice_us: Mapping[str, float] | None = None,
    cluster: PathLike | None = None,
    ranks: int | None = None,
    ranks_per_node: int | None = None,
    model: PathLike = "",
    profile: PathLike = "",
    dispatch: str = "even",
    all_to_all: str = "auto",
    workload: Names = None,
    phase: str | None = None,
    seed: int = 0,
    device: str = "auto",
    output: PathLike | None = None,
    stagger_output: PathLike | None = None,
    progress: bool = False,
) -> OffsetResult:
    """What router offsets, re-routing, staggering, queues, admission and replica choice buy on a trace, and cost.

    Options are the flags of `ebsim offset`. Files are written only to `output` (the lossy file of a controller or cap)
    and `stagger_output` (a plan). Raises `EbsimError` subclasses for bad input.
    """
    said = locals()
    call, told = begun(offset, said)
    with file_of(plan) as file:
        report = run(_request(said, file), told)
    result = OffsetResult(report={**report, "notes": told.notes}, call=call)
    return without_file(result, "plan", "file") if isinstance(plan, PlanResult) else result


def _request(said: Mapping[str, Any], plan: Path | None) -> OffsetRequest:
    """The request that the options of `offset` stand for. plan: the file of `plan`."""
    same = (
        "steps", "past_steps", "warm_up", "sensor_ms", "step_ms", "delay", "controller", "gain", "cap", "force",
    )  # fmt: skip
    return OffsetRequest(
        settings=settings_of(said),
        plan=plan,
        past=paths_of(said["past"]),
        parts=names_of(said["part"]),
        choice_us=tuple((said["choice_us"] or {}).items()),
        output=path_of(said["output"]),
        plan_output=path_of(said["stagger_output"]),
        **{name: said[name] for name in same},
    )


def claim(scenario: PathLike, *, progress: bool = False) -> ClaimResult:
    """Take a capacity claim apart, mechanism by mechanism: what `ebsim offset --scenario` does.

    Raises `UsageError` for a file that is no claim.
    """
    call, told = begun(claim, locals())
    found = run_claim(Path(scenario), told.progress("asking what the cluster sustains", UNITS))
    report = {"scenario": str(scenario), **found.to_dict(), "explained": found.explained(), "notes": told.notes}
    return ClaimResult(report=report, call=call)
