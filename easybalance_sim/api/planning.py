"""`plan` and `plan_phases`: what `ebsim plan` does."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Names, Numbers, PathLike, Traces, names_of, numbers_of, path_of, settings_of
from easybalance_sim.api.plan_files import PlanLike, PlanResult, file_of
from easybalance_sim.api.results import PageResult
from easybalance_sim.phases import fit_phases, publish_phases
from easybalance_sim.pipeline import fit_and_judge, publish
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.policies import Effort

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PhasePlans(PageResult):
    """A plan for prefill and one for decode. phases: those that the trace holds."""

    phases: Mapping[str, PlanResult]

    @property
    def accepted(self) -> bool:
        """Whether the gate accepts every one."""
        return all(made.accepted for made in self.phases.values())

    def line(self) -> str:
        """That of each."""
        return "; ".join(f"{phase} {made.line()}" for phase, made in self.phases.items())

    def table(self) -> pd.DataFrame:
        """The table of each under its phase."""
        import pandas as pd

        return pd.concat({phase: made.table() for phase, made in self.phases.items()})


def plan(
    traces: Traces,
    *,
    cluster: PathLike | None = None,
    ranks: int | None = None,
    ranks_per_node: int | None = None,
    slots_per_rank: int | None = None,
    model: PathLike = "",
    policy: Names = None,
    window_steps: int = 16,
    window_seconds: float = 0.0,
    split: str = "time",
    held_out: float = 0.5,
    forecast: str = "mean",
    half_life: float = 0.0,
    objective: str = "auto",
    budget_s: float = 0.0,
    max_moves: int | None = None,
    max_migration_bytes: int | None = None,
    dispatch: str = "even",
    profile: PathLike = "",
    all_to_all: str = "auto",
    overlap: str = "none",
    step_tokens: int = 0,
    criteria: PathLike | None = None,
    current: PlanLike | None = None,
    lost_ranks: Numbers | None = None,
    workload: Names = None,
    phase: str | None = None,
    stress: bool = False,
    seed: int = 0,
    device: str = "auto",
    dask: str = "",
    force: bool = False,
    output: PathLike | None = None,
    progress: bool = False,
) -> PlanResult:
    """Turn a routing trace into a placement that is proven on traffic the planner did not see, or say no.

    Options are the flags of `ebsim plan`. A file is written only to `output`, and there only an accepted plan, or with
    `force` any. Raises `EbsimError` subclasses for bad input; a rejected plan is a result like any other.
    """
    said = locals()
    call, told = begun(plan, said)
    with file_of(current) as in_force:
        request = _request(said, in_force)
        made = fit_and_judge(request, told)
        report = publish(request, made)
    return PlanResult(report={**report, "notes": told.notes}, document=made.document, call=call)


def plan_phases(traces: Traces, *, progress: bool = False, **options: Any) -> PhasePlans:
    """A plan from the prefill tokens and one from the decode tokens of a trace: what `ebsim plan --per-phase` does.

    options: those of `plan`, `phase` aside; of `output` plan.json become plan.prefill.json and plan.decode.json. Raises
    as `plan`, and `UsageError` where the trace does not tell phases apart.
    """
    bound = inspect.signature(plan).bind(traces, progress=progress, **options)
    bound.apply_defaults()
    said = bound.arguments
    call, told = begun(plan, said)
    call = call.replace(".plan(", ".plan_phases(", 1)
    with file_of(said["current"]) as in_force:
        request = _request(said, in_force)
        made = fit_phases(request, told)
        report = publish_phases(request, made)
    phases = {
        phase: PlanResult(report={**report["phases"][phase], "notes": told.notes}, document=one.document, call=call)
        for phase, one in made.items()
    }
    return PhasePlans(report={**report, "notes": told.notes}, phases=phases, call=call)


def _request(said: Mapping[str, Any], in_force: Path | None) -> PlanRequest:
    """The request that the options of `plan` stand for. in_force: the file of `current`."""
    same = ("split", "held_out", "forecast", "half_life", "objective", "max_migration_bytes", "stress", "force")
    return PlanRequest(
        settings=settings_of(said),
        policies=names_of(said["policy"]),
        criteria=path_of(said["criteria"]),
        current=in_force,
        effort=Effort(budget_s=said["budget_s"], max_moves=said["max_moves"]),
        lost_ranks=() if said["lost_ranks"] is None else numbers_of(said["lost_ranks"]),
        output=path_of(said["output"]),
        **{name: said[name] for name in same},
    )
