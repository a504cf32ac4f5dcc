"""`ebsim rebalance`: when to re-plan, by simulating control loops over a long trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from easybalance_sim.cli import (
    options,
    plan_options,
    rebalance_options,
    rebalance_table,
    report_file,
    report_table,
)
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text


def rebalance(
    traces: options.Traces,
    cluster: options.Cluster = None,
    ranks: options.Ranks = None,
    ranks_per_node: options.RanksPerNode = None,
    slots_per_rank: options.SlotsPerRank = None,
    model: options.Model = "",
    profile: options.Profile = "",
    current: rebalance_options.Current = None,
    first: rebalance_options.First = 0.2,
    cold_start: rebalance_options.ColdStart = False,
    loop: rebalance_options.Loops = None,
    sweep: rebalance_options.Sweep = False,
    by: rebalance_options.By = "",
    min_gain: rebalance_options.MinGain = 0.005,
    confirm: rebalance_options.Confirm = 1,
    certainty: rebalance_options.Certainty = 2.0,
    cooldown: rebalance_options.Cooldown = 4,
    min_interval: rebalance_options.MinInterval = 1,
    horizon: rebalance_options.Horizon = 256,
    step_limit: rebalance_options.StepLimit = 0.25,
    pause_s: rebalance_options.PauseS = None,
    step_ms: rebalance_options.StepMs = 25.0,
    other_ms: rebalance_options.OtherMs = 0.0,
    hours: rebalance_options.Hours = 0.0,
    window_steps: plan_options.WindowSteps = 16,
    window_seconds: options.WindowSeconds = 0.0,
    step_tokens: options.StepTokens = 0,
    all_to_all: options.AllToAll = "auto",
    overlap: options.Overlap = "none",
    workload: options.Workloads = None,
    phase: options.Phase = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Let control loops serve one trace side by side: never re-plan, one offline plan, what engines ship, and ours.

    Every loop but "never" begins with the same offline plan, made from the first windows; the rest is served. A
    re-plan costs the bytes that travel, the stop or the time until the new rows have arrived, and staging memory. Ours
    ("guarded") re-plans only when a plan proves itself on windows that it was not made from. Exit 0.

    \b
    Example: ebsim rebalance traces/tinymoe.parquet --loop static \\
        --loop guarded --hours 2
    """
    console = Console()
    report_file.require(report, figures, [*traces, cluster, current])
    report_table.warn_of_first_run(console)
    from easybalance_sim.planning.session import Settings
    from easybalance_sim.rebalancing.request import LOOPS, RebalanceRequest
    from easybalance_sim.simulate.rebalance.controllers.guarded import Guard

    request = RebalanceRequest(
        settings=Settings(
            traces=tuple(traces), cluster=cluster, ranks=ranks, ranks_per_node=ranks_per_node,
            slots_per_rank=slots_per_rank, model=model, profile=profile, phase=phase, workloads=tuple(workload or ()),
            window_steps=window_steps, window_seconds=window_seconds, all_to_all=all_to_all, step_tokens=step_tokens,
            seed=seed, device=device, overlap=overlap,
        ),
        current=current, first=first, loops=tuple(loop or LOOPS), step_s=step_ms / 1e3, other_s=other_ms / 1e3,
        pause_s=pause_s, hours=hours, cold_start=cold_start, guard=Guard(
            min_gain=min_gain, confirm=confirm, certainty=certainty, cooldown=cooldown, min_interval=min_interval,
            horizon=horizon, step_limit=step_limit,
        ),
    )  # fmt: skip
    _tell(_run(request, console, sweep=sweep, by=by), report, figures, format)


def _tell(found: dict[str, Any], page: Path | None, figures: Path | None, format: Format) -> None:
    emit(json_text(found) if format is Format.JSON else rebalance_table.of(found))
    report_file.write(page, figures, found)


def _run(request: Any, console: Console, *, sweep: bool, by: str) -> dict[str, Any]:
    """The report, with what was noted."""
    from easybalance_sim.errors import UsageError
    from easybalance_sim.rebalancing.run import rebalance as run
    from easybalance_sim.rebalancing.strata import rebalance_by
    from easybalance_sim.rebalancing.sweep import sweep_loops

    if sweep and by:
        raise UsageError("--sweep and --by exclude each other", fix="name one --phase or --workload for the sweep")
    if by:
        return {**rebalance_by(by, request, console), "notes": console.notes}
    return {**(sweep_loops if sweep else run)(request, console), "notes": console.notes}
