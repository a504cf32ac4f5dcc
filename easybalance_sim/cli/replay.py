"""`ebsim replay`: an existing plan on other traffic, before the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing, metrics_file, options, report_file, report_table
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.cli.json_text import json_text


def replay(
    traces: options.Traces,
    plan: Annotated[Path, typer.Option("--plan", metavar="PLAN", help="The plan file to judge.")],
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline",
            autocompletion=completing.baselines,
            metavar="PLAN|NAME",
            help="A plan file, contiguous or round_robin.",
        ),
    ] = "contiguous",
    cluster: options.Cluster = None,
    model: options.Model = "",
    workload: options.Workloads = None,
    phase: options.Phase = None,
    window_steps: Annotated[
        int | None, typer.Option("--window-steps", metavar="N", min=1, help="Steps per window [the plan's].")
    ] = None,
    window_seconds: options.WindowSeconds = 0.0,
    dispatch: Annotated[
        str | None,
        typer.Option(
            "--dispatch", autocompletion=completing.dispatch_rules, metavar="RULE", help="Replica choice [the plan's]."
        ),
    ] = None,
    profile: options.Profile = "",
    all_to_all: options.AllToAll = "auto",
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap", autocompletion=completing.overlaps, metavar="HOW", help="none, two-batch or full [the plan's]."
        ),
    ] = None,
    step_tokens: options.StepTokens = 0,
    criteria: options.Criteria = None,
    stress: options.Stress = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dask: options.Dask = "",
    metrics: options.Metrics = None,
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Replay every token of a trace through a plan and judge it against a baseline.

    Cluster, window length, dispatch rule and overlap are the plan's where nothing is said. On the trace that the plan
    was made from, only what it was not made from is replayed. Exit 0 accepted, 1 rejected, 3 insufficient evidence.

    \b
    Example: ebsim replay traces/tinymoe.parquet --plan plan.json --workload chinese
    """
    console = Console()
    metrics_file.require(metrics, [*traces, plan])
    report_file.require(report, figures, [*traces, plan, Path(baseline), cluster, criteria, metrics])
    report_table.warn_of_first_run(console)
    from easybalance_sim.planning.session import Settings
    from easybalance_sim.verification import ReplayRequest, replay_plan

    said = Settings(
        traces=tuple(traces), cluster=cluster, model=model, profile=profile, phase=phase,
        workloads=tuple(workload or ()), all_to_all=all_to_all, step_tokens=step_tokens, seed=seed, device=device,
        dask=dask,
    )  # fmt: skip
    request = ReplayRequest(
        settings=said, plan=plan, baseline=baseline, criteria=criteria,
        window_steps=window_steps, window_seconds=window_seconds, dispatch=dispatch, overlap=overlap, stress=stress,
    )  # fmt: skip
    judged, verdict = replay_plan(request, console)
    judged["notes"] = console.notes
    metrics_file.write(metrics, judged)
    report_file.write(report, figures, judged)
    emit(json_text(judged) if format is Format.JSON else report_table.of_replay(judged))
    raise typer.Exit(verdict.exit_code)
