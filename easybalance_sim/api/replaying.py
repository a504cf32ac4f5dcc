"""`replay`: what `ebsim replay` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Names, PathLike, Traces, path_of, settings_of
from easybalance_sim.api.plan_files import PlanLike, PlanResult, named
from easybalance_sim.api.results import JudgedResult, without_file
from easybalance_sim.verification import ReplayRequest, replay_plan


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReplayResult(JudgedResult):
    """A plan on other traffic, and what the gate says of it."""


def replay(
    traces: Traces,
    *,
    plan: PlanLike,
    baseline: PlanLike = "contiguous",
    cluster: PathLike | None = None,
    model: PathLike = "",
    workload: Names = None,
    phase: str | None = None,
    window_steps: int | None = None,
    window_seconds: float = 0.0,
    dispatch: str | None = None,
    profile: PathLike = "",
    all_to_all: str = "auto",
    overlap: str | None = None,
    step_tokens: int = 0,
    criteria: PathLike | None = None,
    stress: bool = False,
    seed: int = 0,
    device: str = "auto",
    dask: str = "",
    progress: bool = False,
) -> ReplayResult:
    """Replay every token of a trace through a plan and judge it against a baseline.

    Options are the flags of `ebsim replay`; plan, baseline: results or plan files, the baseline also contiguous or
    round_robin. Raises `EbsimError` subclasses for bad input; a rejected plan is a result like any other.
    """
    said = locals()
    call, told = begun(replay, said)
    settings = settings_of({**said, "window_steps": None, "window_seconds": None, "dispatch": None, "overlap": None})
    with named(plan) as judged, named(baseline) as other:
        request = ReplayRequest(
            settings=settings,
            plan=Path(judged),
            baseline=other,
            criteria=path_of(criteria),
            window_steps=window_steps,
            window_seconds=window_seconds,
            dispatch=dispatch,
            overlap=overlap,
            stress=stress,
        )
        report, _ = replay_plan(request, told)
    result = ReplayResult(report={**report, "notes": told.notes}, call=call)
    return without_file(result, "plan_file") if isinstance(plan, PlanResult) else result
