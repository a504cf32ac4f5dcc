"""`ebsim sweep`: how many redundant slots are worth their memory, on how many ranks, planned on which windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from easybalance_sim.cli import options, plan_options, report_file, report_table, sweep_options, sweep_table
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text

if TYPE_CHECKING:
    from easybalance_sim.sweep.request import SweepRequest


def sweep(
    traces: options.Traces,
    cluster: options.Cluster = None,
    ranks: sweep_options.Ranks = "",
    ranks_per_node: options.RanksPerNode = None,
    slots_per_rank: sweep_options.SlotsPerRank = "",
    redundancy: sweep_options.Redundancy = "",
    per_layer: sweep_options.PerLayer = False,
    model: options.Model = "",
    kv_cache_dtype: sweep_options.KvCacheDtype = "bf16",
    policy: sweep_options.Policies = None,
    window_steps: sweep_options.WindowSteps = sweep_options.DEFAULT_WINDOW_STEPS,
    window_seconds: options.WindowSeconds = 0.0,
    split: plan_options.Split = "time",
    held_out: plan_options.HeldOut = 0.5,
    forecast: plan_options.Forecast = "mean",
    half_life: plan_options.HalfLife = 0.0,
    objective: plan_options.Objective = "auto",
    budget_s: sweep_options.BudgetS = 0.0,
    dispatch: plan_options.Dispatch = "even",
    profile: options.Profile = "",
    all_to_all: options.AllToAll = "auto",
    overlap: options.Overlap = "none",
    step_tokens: options.StepTokens = 0,
    workload: options.Workloads = None,
    phase: options.Phase = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    dask: options.Dask = "",
    figure: sweep_options.Figure = None,
    output: sweep_options.Output = None,
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Show what redundant slots win on held-out traffic and how much KV cache they cost, and mark the knee.

    Zero redundancy is always among the points. Exit 0; nothing is planned for use: `ebsim plan` does that.

    \b
    Example: ebsim sweep traces/tinymoe.parquet --redundancy 0,1 --per-layer \\
        --figure sweep.svg
    """
    console = Console()
    report_file.require(report, figures, [*traces, cluster, figure, output])
    asked = sweep_options.Numbers.of(ranks, slots_per_rank, redundancy, window_steps)
    report_table.warn_of_first_run(console)
    from easybalance_sim.planning.request import PlanRequest
    from easybalance_sim.planning.session import Settings
    from easybalance_sim.policies import Effort
    from easybalance_sim.sweep.request import SweepRequest

    settings = Settings(
        traces=tuple(traces), cluster=cluster, ranks_per_node=ranks_per_node, model=model, profile=profile,
        phase=phase, workloads=tuple(workload or ()), window_seconds=window_seconds, dispatch=dispatch,
        all_to_all=all_to_all, step_tokens=step_tokens, seed=seed, device=device, dask=dask, overlap=overlap,
    )  # fmt: skip
    plan = PlanRequest(
        settings=settings, policies=tuple(policy or ()), split=split, held_out=held_out, forecast=forecast,
        half_life=half_life, objective=objective, effort=Effort(budget_s=budget_s), output=output,
    )  # fmt: skip
    request = SweepRequest(
        plan=plan, slots_per_rank=asked.slots_per_rank, redundancy=asked.redundancy, ranks=asked.ranks,
        window_steps=asked.window_steps, per_layer=per_layer, kv_dtype=kv_cache_dtype, figure=figure,
    )  # fmt: skip
    found = _run(request, console)
    emit(json_text(found) if format is Format.JSON else sweep_table.of_sweep(found))
    report_file.write(report, figures, found)


def _run(request: SweepRequest, console: Console) -> dict[str, Any]:
    """The report; its files are written when all of it is there."""
    from easybalance_sim.files import write_text
    from easybalance_sim.sweep.run import run_sweep, write_report

    report = run_sweep(request, console)
    report["notes"] = console.notes
    console.took(report)
    if request.figure is not None:
        from easybalance_sim.report.sweep_figure import svg_of

        write_text(request.figure, svg_of(report))
    write_report(request, report)
    return report
