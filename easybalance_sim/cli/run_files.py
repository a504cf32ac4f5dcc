"""The files that a run writes beside its plan: figures for Prometheus, the page of its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from easybalance_sim.cli import metrics_file, report_file, report_table
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.json_text import json_text


def begun(report: Path | None, figures: Path | None, metrics: Path | None, used: Sequence[Path | None]) -> Console:
    """The console of a run that has a place for all that it will write; used: files that it reads or writes else.

    Raises `UsageError` where there is no such place.
    """
    metrics_file.require(metrics, [path for path in used if path is not None and path.exists()])
    report_file.require(report, figures, [*used, metrics])
    console = Console()
    report_table.warn_of_first_run(console)
    return console


def deliver(
    made: Mapping[str, Any],
    metrics: Path | None,
    report: Path | None,
    figures: Path | None,
    format: Format,
    as_text: Callable[[Mapping[str, Any]], str],
) -> None:
    """Print the report, then write what was asked for: a run is not lost with a file. made: as `--format json` prints
    it."""
    emit(json_text(made) if format is Format.JSON else as_text(made))
    metrics_file.write(metrics, made)
    report_file.write(report, figures, made)
