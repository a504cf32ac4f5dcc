"""`ebsim plan`: fit candidates, judge the best on held-out traffic, write it when accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from easybalance_sim.cli import options, phases_table, plan_options, report_table, run_files
from easybalance_sim.cli.console import Console, Format

if TYPE_CHECKING:
    from easybalance_sim.planning.request import PlanRequest


def plan(
    traces: options.Traces,
    cluster: options.Cluster = None,
    ranks: options.Ranks = None,
    ranks_per_node: options.RanksPerNode = None,
    slots_per_rank: options.SlotsPerRank = None,
    model: options.Model = "",
    policy: plan_options.Policies = None,
    window_steps: plan_options.WindowSteps = 16,
    window_seconds: options.WindowSeconds = 0.0,
    split: plan_options.Split = "time",
    held_out: plan_options.HeldOut = 0.5,
    forecast: plan_options.Forecast = "mean",
    half_life: plan_options.HalfLife = 0.0,
    objective: plan_options.Objective = "auto",
    budget_s: plan_options.BudgetS = 0.0,
    max_moves: plan_options.MaxMoves = None,
    max_migration_bytes: plan_options.MaxMigrationBytes = None,
    dispatch: plan_options.Dispatch = "even",
    profile: options.Profile = "",
    all_to_all: options.AllToAll = "auto",
    overlap: options.Overlap = "none",
    step_tokens: options.StepTokens = 0,
    criteria: options.Criteria = None,
    current: plan_options.Current = None,
    lost_ranks: plan_options.LostRanks = None,
    workload: options.Workloads = None,
    phase: options.Phase = None,
    per_phase: plan_options.PerPhase = False,
    stress: options.Stress = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dask: options.Dask = "",
    force: plan_options.Force = False,
    output: plan_options.Output = None,
    metrics: options.Metrics = None,
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Turn a routing trace into a placement that is proven on traffic the planner did not see, or say no.

    Exit 0 accepted, 1 rejected, 3 insufficient evidence; the plan file is written only when accepted.

    \b
    Example: ebsim plan traces/tinymoe.parquet --ranks 8 --slots-per-rank 10 \\
        --split request -o plan.json
    """
    console = run_files.begun(report, figures, metrics, [*traces, cluster, criteria, current, output])
    from easybalance_sim.planning.request import PlanRequest
    from easybalance_sim.planning.session import Settings
    from easybalance_sim.policies import Effort

    chosen = Settings(
        traces=tuple(traces), cluster=cluster, ranks=ranks, ranks_per_node=ranks_per_node,
        slots_per_rank=slots_per_rank, model=model, profile=profile, phase=phase, workloads=tuple(workload or ()),
        window_steps=window_steps, window_seconds=window_seconds, dispatch=dispatch, all_to_all=all_to_all,
        step_tokens=step_tokens, seed=seed, device=device, dask=dask, overlap=overlap,
    )  # fmt: skip
    request = PlanRequest(
        settings=chosen, policies=tuple(policy or ()), split=split, held_out=held_out, forecast=forecast,
        half_life=half_life, criteria=criteria, current=current, force=force, output=output, objective=objective,
        effort=Effort(budget_s=budget_s, max_moves=max_moves), max_migration_bytes=max_migration_bytes,
        lost_ranks=plan_options.ranks_of(lost_ranks), stress=stress,
    )  # fmt: skip
    made, code = _made(request, per_phase, console)
    run_files.deliver(made, metrics, report, figures, format, _text)
    raise typer.Exit(code)


def _made(request: PlanRequest, per_phase: bool, console: Console) -> tuple[dict[str, Any], int]:
    """The report and the exit code."""
    from easybalance_sim.phases import make_phase_plans
    from easybalance_sim.pipeline import make_plan

    if per_phase:
        report, code = make_phase_plans(request, console)
    else:
        report, verdict = make_plan(request, console)
        code = verdict.exit_code
    console.took(report)
    return {**report, "notes": console.notes}, code


def _text(made: Mapping[str, Any]) -> str:
    return phases_table.of_phases(made) if "phases" in made else report_table.of_plan(made)
