"""`ebsim report`: a saved report as a page that needs nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from easybalance_sim.cli import options, report_file
from easybalance_sim.cli.console import Console, Format, emit
from easybalance_sim.cli.layout import filled, kept
from easybalance_sim.errors import UsageError
from easybalance_sim.report.words import many

if TYPE_CHECKING:
    from collections.abc import Mapping


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What a command printed with --format json, or a plan.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.html",
            show_default=False,
            help="The page [FILE's name, .html, if none is there].",
        ),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option("--trace", metavar="TRACE", help="Of a plan file: replay it on this traffic; may be repeated."),
    ] = None,
    figures: options.Figures = None,
    format: options.OutputFormat = Format.TABLE,
) -> None:
    """Make one HTML page of a saved report: verdict and findings first, then figures with their data; no network.

    FILE is what plan, replay, rebalance, sweep, simulate, capacity, offload, offset or rollout printed with --format
    json, or a plan file. A plan file shows what it was accepted by; with --trace it is replayed as by `ebsim replay`,
    which adds the maps of load. Exit 0 when the page is written, whatever the verdict in it.

    \b
    Example: ebsim report report.json -o report.html
    """
    from easybalance_sim.report.saved import read_saved

    content = read_saved(file)
    page = output or file.with_suffix(".html")
    report_file.require(page, figures, [file, *(trace or ())], flag="-o")
    if output is None and page.exists():
        raise UsageError("is there already", where=str(page), fix=f"say -o {page} to write over it, or name another")
    console = Console()
    document = _document(file, content, trace or [], console)
    try:
        made = report_file.write(page, figures, document, of=str(file))
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        what = f"cannot be drawn, it was edited ({type(error).__name__}: {error})"
        raise UsageError(what, where=str(file), fix="make the report again") from error
    if made is None:
        return
    names = [figure.name for figure in made.figures()]
    if format is Format.JSON:
        emit(json.dumps({"page": str(page), "headline": made.headline.word, "figures": names}, indent=2))
    else:
        beside = f", and as files in {kept(figures)}" if figures else ""
        emit(filled(f"{made.headline.word}: written to {kept(page)}, {many(len(names), 'figure')}{beside}"))


def _document(file: Path, content: Mapping[str, Any], traces: list[Path], console: Console) -> Mapping[str, Any]:
    from easybalance_sim.planning.session import Settings
    from easybalance_sim.report.saved import is_plan, report_of
    from easybalance_sim.verification import ReplayRequest, replay_plan

    if not traces:
        return report_of(file, content)
    if not is_plan(content):
        raise UsageError("is of a plan file; a report is shown as it is", where="--trace", fix="leave it out")
    judged, _ = replay_plan(ReplayRequest(settings=Settings(traces=tuple(traces)), plan=file), console)
    return {**judged, "notes": console.notes}
