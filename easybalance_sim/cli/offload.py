"""`ebsim offload`: how much of a model's experts has to be on the GPU, and what the rest costs on its way there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from easybalance_sim.cli import offload_options, offload_table, options, report_file, report_table
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text

if TYPE_CHECKING:
    from easybalance_sim.offloading.request import OffloadRequest


def offload(
    traces: options.Traces,
    model: options.Model = "",
    profile: options.Profile = "",
    gpu_gb: offload_options.GpuGb = None,
    cached_share: offload_options.CachedShare = "",
    policy: offload_options.Policies = None,
    prefetch: offload_options.Prefetch = None,
    ahead: offload_options.Ahead = 1,
    scope: offload_options.Scope = "layer",
    host: offload_options.Host = "pcie5",
    resident_dtype: offload_options.ResidentDtype = "",
    offload_dtype: offload_options.OffloadDtype = "",
    batch: offload_options.Batches = "",
    between_us: offload_options.BetweenUs = None,
    within: offload_options.Within = 0.1,
    held_out: offload_options.HeldOut = 0.5,
    workload: options.Workloads = None,
    phase: options.Phase = None,
    figure: offload_options.Figure = None,
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Keep experts in host memory or on a drive: hit rates of caches, bytes on the link, and how much longer steps get.

    Caches fill, and predictors learn, on the first part of the trace; the rest is judged. belady and oracle know the
    future and bound what a policy or a predictor can do. Exit 0.

    \b
    Example: ebsim offload traces/tinymoe.parquet --batch 1,8 --host pcie5 \\
        --cached-share 0.25,0.5,0.75
    """
    console = Console()
    report_file.require(report, figures, [*traces, figure])
    shares = offload_options.shares_of(cached_share)
    batches = offload_options.batches_of(batch)
    report_table.warn_of_first_run(console)
    from easybalance_sim.offloading.request import OffloadRequest
    from easybalance_sim.planning.session import Settings

    settings = Settings(
        traces=tuple(traces), model=model, profile=profile, phase=phase, workloads=tuple(workload or ()),
    )  # fmt: skip
    request = OffloadRequest(
        settings=settings, shares=shares, gpu_gb=gpu_gb, policies=tuple(policy or ()), prefetch=tuple(prefetch or ()),
        scope=scope, host=host, resident_dtype=resident_dtype, offload_dtype=offload_dtype, batches=batches,
        ahead=ahead, between_us=between_us, within=within, held_out=held_out, figure=figure,
    )  # fmt: skip
    found = _run(request, console)
    emit(json_text(found) if format is Format.JSON else offload_table.of(found))
    report_file.write(report, figures, found)


def _run(request: OffloadRequest, console: Console) -> dict[str, Any]:
    """The report; the figure is drawn when all of it is there."""
    from easybalance_sim.offloading.run import run_offload

    report = run_offload(request, console)
    report["figure"] = None
    if request.figure is not None:
        from easybalance_sim.files import write_text
        from easybalance_sim.report.offload_figure import svg_of

        write_text(request.figure, svg_of(report))
        report["figure"] = str(request.figure)
    report["notes"] = console.notes
    return report
