"""`ebsim replay`: an existing plan on other traffic, before the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from easybalance_sim.cli import completing, options, report_table, run_files
from easybalance_sim.cli.console import Format

Baseline = Annotated[
    str,
    typer.Option(
        "--baseline",
        autocompletion=completing.baselines,
        metavar="PLAN|NAME",
        help="A plan file, contiguous or round_robin.",
    ),
]


def replay(
    traces: options.Traces,
    plan: Annotated[Path, typer.Option("--plan", metavar="PLAN", help="The plan file to judge.")],
    baseline: Baseline = "contiguous",
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
    Example: ebsim replay traces/tinymoe.parquet --plan plan.json \\
        --workload chinese
    """
    console = run_files.begun(report, figures, metrics, [*traces, plan, Path(baseline), cluster, criteria])
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
    console.took(judged)
    run_files.deliver(judged, metrics, report, figures, format, report_table.of_replay)
    raise typer.Exit(verdict.exit_code)
