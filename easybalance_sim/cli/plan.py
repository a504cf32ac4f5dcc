"""`ebsim plan`: fit candidates, judge the best on held-out traffic, write it when accepted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import options, report_table
from easybalance_sim.cli.console import Console, Format, emit


def plan(
    traces: options.Traces,
    cluster: options.Cluster = None,
    ranks: options.Ranks = None,
    ranks_per_node: options.RanksPerNode = None,
    slots_per_rank: options.SlotsPerRank = None,
    model: options.Model = "",
    policy: Annotated[
        list[str] | None, typer.Option("--policy", metavar="NAME", help="Only this policy; may be repeated [all].")
    ] = None,
    window_steps: Annotated[int, typer.Option("--window-steps", min=1, help="Steps per window.")] = 16,
    window_seconds: options.WindowSeconds = 0.0,
    split: Annotated[str, typer.Option("--split", metavar="BY", help="time, request or workload.")] = "time",
    held_out: Annotated[float, typer.Option("--held-out", help="Share that the planner does not see.")] = 0.5,
    forecast: Annotated[
        str, typer.Option("--forecast", metavar="HOW", help="mean, last, ema-fast or ema-slow.")
    ] = "mean",
    half_life: Annotated[float, typer.Option("--half-life", min=0.0, help="Of an ema, in windows [4 or 64].")] = 0.0,
    objective: Annotated[
        str, typer.Option("--objective", metavar="WHAT", help="What a search balances: auto, tokens or seconds.")
    ] = "auto",
    budget_s: Annotated[float, typer.Option("--budget-s", min=0.0, help="Seconds a search may take [no limit].")] = 0.0,
    max_moves: Annotated[
        int | None, typer.Option("--max-moves", min=0, help="Experts that may be fetched, with --current.")
    ] = None,
    max_migration_bytes: Annotated[
        int | None,
        typer.Option("--max-migration-bytes", min=0, help="Weight bytes that may be fetched, with --current."),
    ] = None,
    dispatch: Annotated[
        str, typer.Option("--dispatch", metavar="RULE", help="How the engine picks a replica (see the README).")
    ] = "even",
    profile: options.Profile = "",
    all_to_all: options.AllToAll = "auto",
    step_tokens: options.StepTokens = 0,
    criteria: options.Criteria = None,
    current: Annotated[
        Path | None, typer.Option("--current", metavar="PLAN", help="The plan in force: baseline and candidate.")
    ] = None,
    workload: options.Workloads = None,
    phase: options.Phase = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    force: Annotated[bool, typer.Option("--force", help="Write the plan whatever the verdict (it is inside).")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="PLAN", help="The plan file.")] = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Turn a routing trace into a placement that is proven on traffic the planner did not see, or say no.

    Exit 0 accepted, 1 rejected, 3 insufficient evidence; the plan file is written only when accepted.

    \b
    Example: ebsim plan traces/tinymoe.parquet --ranks 8 --slots-per-rank 10 --split request -o plan.json
    """
    console = Console()
    report_table.warn_of_first_run(console)
    from easybalance_sim.pipeline import PlanRequest, make_plan
    from easybalance_sim.policies import Effort
    from easybalance_sim.session import Settings

    chosen = Settings(
        traces=tuple(traces), cluster=cluster, ranks=ranks, ranks_per_node=ranks_per_node,
        slots_per_rank=slots_per_rank, model=model, profile=profile, phase=phase, workloads=tuple(workload or ()),
        window_steps=window_steps, window_seconds=window_seconds, dispatch=dispatch, all_to_all=all_to_all,
        step_tokens=step_tokens, seed=seed, device=device,
    )  # fmt: skip
    request = PlanRequest(
        settings=chosen, policies=tuple(policy or ()), split=split, held_out=held_out, forecast=forecast,
        half_life=half_life, criteria=criteria, current=current, force=force, output=output, objective=objective,
        effort=Effort(budget_s=budget_s, max_moves=max_moves), max_migration_bytes=max_migration_bytes,
    )  # fmt: skip
    report, verdict = make_plan(request, console)
    report["notes"] = console.notes
    emit(json.dumps(report, indent=2, allow_nan=False) if format is Format.JSON else report_table.of_plan(report))
    raise typer.Exit(verdict.exit_code)
