"""`sweep`: what `ebsim sweep` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import (
    Names,
    Numbers,
    PathLike,
    Traces,
    names_of,
    numbers_of,
    settings_of,
)
from easybalance_sim.api.results import PageResult
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.policies import Effort
from easybalance_sim.sweep.request import SweepRequest
from easybalance_sim.sweep.run import run_sweep

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_WINDOW_STEPS = 16


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepResult(PageResult):
    """What redundant slots win, and how much KV cache they cost."""

    def line(self) -> str:
        """The knee of every curve."""
        return "; ".join(_knee(curve, self.report["gain_by"]) for curve in self.report["curves"])

    def table(self) -> pd.DataFrame:
        """One row per point of every curve."""
        from easybalance_sim.api.tables import rows_of

        of_curve = ("ranks", "nodes", "window_steps")
        return rows_of(
            {**{name: curve[name] for name in of_curve}, **point}
            for curve in self.report["curves"]
            for point in curve["points"]
        )


def sweep(
    traces: Traces,
    *,
    cluster: PathLike | None = None,
    ranks: Numbers = (),
    ranks_per_node: int | None = None,
    slots_per_rank: Numbers = (),
    redundancy: Numbers = (),
    per_layer: bool = False,
    model: PathLike = "",
    kv_cache_dtype: str = "bf16",
    policy: Names = None,
    window_steps: Numbers = DEFAULT_WINDOW_STEPS,
    window_seconds: float = 0.0,
    split: str = "time",
    held_out: float = 0.5,
    forecast: str = "mean",
    half_life: float = 0.0,
    objective: str = "auto",
    budget_s: float = 0.0,
    dispatch: str = "even",
    profile: PathLike = "",
    all_to_all: str = "auto",
    overlap: str = "none",
    step_tokens: int = 0,
    workload: Names = None,
    phase: str | None = None,
    seed: int = 0,
    device: str = "auto",
    dask: str = "",
    progress: bool = False,
) -> SweepResult:
    """Show what redundant slots win on held-out traffic and how much KV cache they cost, and mark the knee.

    Options are the flags of `ebsim sweep`; where those take lists, one number or several. Raises `EbsimError`
    subclasses for bad input.
    """
    said = locals()
    call, told = begun(sweep, said)
    request = SweepRequest(
        plan=_plan_request(said),
        slots_per_rank=numbers_of(slots_per_rank),
        redundancy=numbers_of(redundancy),
        ranks=numbers_of(ranks),
        window_steps=numbers_of(window_steps) or (DEFAULT_WINDOW_STEPS,),
        per_layer=per_layer,
        kv_dtype=kv_cache_dtype,
    )
    report = run_sweep(request, told)
    return SweepResult(report={**report, "notes": told.notes}, call=call)


def _plan_request(said: Mapping[str, Any]) -> PlanRequest:
    """What a point of the sweep is planned with; ranks, slots and windows are those of the point."""
    here = {**said, "ranks": None, "slots_per_rank": None, "window_steps": None}
    same = ("split", "held_out", "forecast", "half_life", "objective")
    return PlanRequest(
        settings=settings_of(here),
        policies=names_of(said["policy"]),
        effort=Effort(budget_s=said["budget_s"]),
        **{name: said[name] for name in same},
    )


def _knee(curve: Mapping[str, Any], by: str) -> str:
    knee = curve["knee"][by]
    best = "no redundant slot is worth it" if knee is None else f"{knee['extra_slots_per_rank']} extra slots per rank"
    return f"{curve['ranks']} ranks: {best} (by {by})"
