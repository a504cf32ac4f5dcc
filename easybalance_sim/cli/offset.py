"""`ebsim offset`: every mechanism against rank imbalance, lossless and lossy, with what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.cli import offset_options, offset_table, options, plan_options, report_file, report_table
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text

if TYPE_CHECKING:
    from easybalance_sim.mechanisms.request import OffsetRequest


COMPILING = "30 to 60 seconds"
"""Of two cores, where every part is asked for: most kernels of all commands."""


def offset(
    traces: offset_options.Traces = None,
    plan: offset_options.Plan = None,
    past: offset_options.Past = None,
    steps: offset_options.Steps = "",
    past_steps: offset_options.PastSteps = "",
    warm_up: offset_options.WarmUp = 40,
    sensor_ms: offset_options.SensorMs = 300.0,
    step_ms: offset_options.StepMs = None,
    delay: offset_options.Delay = 1,
    controller: offset_options.ControllerName = "",
    gain: offset_options.Gain = None,
    cap: offset_options.Cap = None,
    force: offset_options.Force = False,
    part: offset_options.Parts = None,
    choice_us: offset_options.ChoiceUs = None,
    scenario: offset_options.Scenario = None,
    cluster: options.Cluster = None,
    ranks: options.Ranks = None,
    ranks_per_node: options.RanksPerNode = None,
    model: options.Model = "",
    profile: options.Profile = "",
    dispatch: plan_options.Dispatch = "even",
    all_to_all: options.AllToAll = "auto",
    workload: options.Workloads = None,
    phase: options.Phase = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    output: offset_options.Output = None,
    stagger_output: offset_options.StaggerOutput = None,
    figure: offset_options.Figure = None,
    report: options.Report = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """What router offsets, re-routing, staggering, queues, admission and replica choice buy on a trace, and cost.

    Placements are made from the past, everything is judged on later steps. Lossy mechanisms need a trace with scores
    (`ebsim trace check` says what a trace supports); their price is a band of nats beside the lossless alternatives,
    and they are never written into a plan. A gain above 0.7 of what is stable is refused. Exit 0.

    \b
    Example: ebsim offset traces/tinymoe_scores.parquet --warm-up 20 \\
        --past traces/tinymoe.parquet --past-steps 0:900

    \b
    Example: ebsim offset traces/tinymoe.parquet --part staggering \\
        --stagger-output staggered.json
    """
    console = Console()
    own = [plan, cluster, output, stagger_output, figure]
    report_file.require(report, figures, [*(traces or ()), *(past or ()), scenario, *own])
    report_table.warn_of_first_run(console, COMPILING)
    from easybalance_sim.mechanisms.request import OffsetRequest
    from easybalance_sim.planning.session import Settings

    if scenario is not None:
        _require_alone(traces, past, controller, gain, cap, part, choice_us, ranks, *own)
        _of_scenario(scenario, console, report, figures, format)
        return
    request = OffsetRequest(
        settings=Settings(
            traces=_named(traces), cluster=cluster, ranks=ranks, ranks_per_node=ranks_per_node, model=model,
            profile=profile, phase=phase, workloads=tuple(workload or ()), dispatch=dispatch, all_to_all=all_to_all,
            seed=seed, device=device,
        ),
        plan=plan, past=tuple(past or ()), steps=offset_options.step_range("--steps", steps),
        past_steps=offset_options.step_range("--past-steps", past_steps), warm_up=warm_up, sensor_ms=sensor_ms,
        step_ms=step_ms, delay=delay, controller=controller, gain=gain, cap=cap, force=force,
        choice_us=offset_options.microseconds(choice_us), parts=tuple(part or ()), output=output,
        plan_output=stagger_output, figure=figure,
    )  # fmt: skip
    _deliver(_run(request, console), report, figures, format)


def _deliver(found: dict[str, Any], report: Path | None, figures: Path | None, format: Format) -> None:
    """Print what was found, and write its page."""
    emit(json_text(found) if format is Format.JSON else offset_table.of(found))
    report_file.write(report, figures, found)


def _named(traces: list[Path] | None) -> tuple[Path, ...]:
    from easybalance_sim.errors import UsageError

    if not traces:
        raise UsageError("which trace?", where="TRACE", fix="name a token trace, or a --scenario")
    return tuple(traces)


def _require_alone(*others: object) -> None:
    """Refuse what a scenario would not look at."""
    from easybalance_sim.errors import UsageError

    if any(other not in (None, "", []) for other in others):
        raise UsageError(
            "a scenario brings its own traffic, cluster and mechanisms",
            where="--scenario",
            fix="leave out TRACE and all options but --format, --report and --figures",
        )


def _of_scenario(path: Path, console: Console, page: Path | None, figures: Path | None, format: Format) -> None:
    """Print what becomes of a capacity claim."""
    from easybalance_sim.simulate.capacity.run import UNITS, run

    report = run(path, console.progress("asking what the cluster sustains", UNITS))
    claim = {"scenario": str(path), **report.to_dict(), "explained": report.explained(), "notes": console.notes}
    emit(json_text(claim) if format is Format.JSON else offset_table.of_scenario(claim))
    report_file.write(page, figures, claim)


def _run(request: OffsetRequest, console: Console) -> dict[str, Any]:
    """The report; the figure is drawn when all of it is there."""
    from easybalance_sim.mechanisms.run import offset as run

    report = run(request, console)
    if request.figure is not None:
        from easybalance_sim.files import write_text
        from easybalance_sim.report.front_figure import svg_of

        write_text(request.figure, svg_of(report))
        report["files"]["figure"] = str(request.figure)
    report["notes"] = console.notes
    return report
