"""`ebsim compare`: measured rank times beside the tokens and seconds that were predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from easybalance_sim.cli import options
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.cli.layout import aligned, filled
from easybalance_sim.json_text import json_text
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    import pandas as pd

    from easybalance_sim.observed.tables import Observed

_ROWS = (
    ("correlation inside a step and layer", "within", "{:.3f}"),
    ("correlation over all", "pearson", "{:.3f}"),
    ("  of the order (Spearman)", "spearman", "{:.3f}"),
    ("mean absolute error, % of the mean", "error", "{:.1%}"),
    ("bias", "bias", "{:+.1%}"),
    ("time without load, µs", "fixed_us", "{:.1f}"),
    ("busiest is the slowest", "slowest_agrees", "{:.1%}"),
    ("  by guessing", "slowest_by_chance", "{:.1%}"),
    ("time of the busiest over the slowest", "busiest_time", "{:.1%}"),
    ("max/mean rank", "imbalance", "{:.3f}"),
    ("  measured time", "measured_imbalance", "{:.3f}"),
)


def compare(
    predicted: Annotated[
        Path,
        typer.Argument(metavar="PREDICTED", help="A plan file with --trace, or what `ebsim trace loads -o` wrote."),
    ],
    observed: Annotated[
        Path, typer.Argument(metavar="OBSERVED", help="Measured times: .csv or .parquet of step, layer, rank, us.")
    ],
    trace: Annotated[
        list[Path] | None, typer.Option("--trace", metavar="TRACE", help="The routing of the measured run.")
    ] = None,
    model: options.Model = "",
    profile: options.Profile = "",
    workload: options.Workloads = None,
    phase: options.Phase = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Is token count a good enough cost model here, and are the predicted seconds?

    Times are expert times of ranks, before they wait for each other. A plan file is followed over the trace of the
    measured run and priced; a file of loads knows tokens only. Without step the times are means over steps, without
    layer sums over layers. Exit 0 good enough, 1 recalibrate, 2 bad input, 3 too few observations.

    \b
    Example: ebsim compare plan.json rank_times.csv --trace traces/tinymoe.parquet
    """
    console = Console()
    from easybalance_sim.observed.judged import compare as compared
    from easybalance_sim.observed.tables import at_grain, read_loads, read_observed
    from easybalance_sim.planning.session import Settings

    times = read_observed(observed)
    if trace:
        said = Settings(
            traces=tuple(trace), model=model, profile=profile, workloads=tuple(workload or ()), phase=phase, seed=seed,
            device=device,
        )  # fmt: skip
        loads, label = _followed(predicted, said, times, console)
    else:
        _require_loads(predicted)
        loads, label = read_loads(predicted), None
    found = compared(at_grain(loads, times, str(predicted)), times)
    report = {**found.report, "cost": label, "notes": console.notes}
    emit(json_text(report) if format is Format.JSON else _text(report))
    raise typer.Exit(found.exit_code)


def _followed(path: Path, said: Any, times: Observed, console: Console) -> tuple[pd.DataFrame, str]:
    from easybalance_sim.observed.predicted import predict

    found = predict(path, said, times.steps, console)
    return found.loads, found.label


def _require_loads(path: Path) -> None:
    from easybalance_sim.errors import UsageError

    if path.suffix == ".json":
        raise UsageError(
            "a plan or a report says no loads of ranks", where=str(path), fix="give the plan file with --trace"
        )


def _text(report: dict[str, Any]) -> str:
    models = report["models"]
    head = [
        f"{report['status'].upper()}: {report['answer']}",
        f"{many(report['observations'], 'time')} of ranks in {many(report['groups'], 'group')}, "
        f"by {', '.join(report['grain'])}"
        + (f"; {many(report['not_predicted'], 'row')} not predicted" if report["not_predicted"] else ""),
    ]
    if report["routing_error"] is not None:
        head.append(f"measured tokens differ from those predicted by {report['routing_error']:.1%}")
    head = [filled(line) for line in head]
    if not models:
        return "\n".join(head)
    rows = [("", *models), *((title, *_cells(models, key, form)) for title, key, form in _ROWS)]
    failed = [("", "limit", *models), *(_finding(criterion, report) for criterion in _criteria(models))]
    parts = ["\n".join(head), aligned(rows), aligned(failed), *([filled(report["cost"])] if report["cost"] else [])]
    return "\n\n".join(parts)


def _cells(models: dict[str, Any], key: str, form: str) -> list[str]:
    return ["–" if one[key] is None else form.format(one[key]) for one in models.values()]


def _criteria(models: dict[str, Any]) -> list[str]:
    named = [finding["criterion"] for one in models.values() for finding in one["findings"]]
    return list(dict.fromkeys(named))


def _finding(criterion: str, report: dict[str, Any]) -> tuple[str, ...]:
    marks = []
    for one in report["models"].values():
        ok = [finding["ok"] for finding in one["findings"] if finding["criterion"] == criterion]
        marks.append("–" if not ok else "ok" if ok[0] else "NO")
    return (criterion, f"{report['limits'][criterion]:g}", *marks)
