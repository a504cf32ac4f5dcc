"""`plan`: what `ebsim plan` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from easybalance_sim.api.calls import begun
from easybalance_sim.api.inputs import Names, PathLike, Traces, names_of, path_of, settings_of
from easybalance_sim.api.plan_files import PlanLike, PlanResult, file_of
from easybalance_sim.pipeline import fit_and_judge, publish
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.policies import Effort


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
    lost_ranks: Sequence[int] | None = None,
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


def _request(said: Mapping[str, Any], in_force: Path | None) -> PlanRequest:
    """The request that the options of `plan` stand for. in_force: the file of `current`."""
    same = ("split", "held_out", "forecast", "half_life", "objective", "max_migration_bytes", "stress", "force")
    return PlanRequest(
        settings=settings_of(said),
        policies=names_of(said["policy"]),
        criteria=path_of(said["criteria"]),
        current=in_force,
        effort=Effort(budget_s=said["budget_s"], max_moves=said["max_moves"]),
        lost_ranks=tuple(said["lost_ranks"] or ()),
        output=path_of(said["output"]),
        **{name: said[name] for name in same},
    )
