"""`--report FILE.html` and `--figures DIR`: the page of a report and its figures, as files."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from easybalance_sim.amounts import Amount
from easybalance_sim.cli.console import Console
from easybalance_sim.errors import UsageError
from easybalance_sim.report.html import SUFFIXES

if TYPE_CHECKING:
    from easybalance_sim.report.content import Page


def require(
    report: Path | None, figures: Path | None, inputs: Sequence[Path | None], *, flag: str = "--report"
) -> None:
    """Before a run: raise `UsageError` where the page or the figures could not be put.

    inputs: files that the run reads, and those that it writes for others; None is left out · flag: that names the page.
    """
    keep = [path for path in inputs if path is not None]
    if report is not None:
        _require_page(report, keep, flag)
    if figures is not None:
        _require_folder(figures, keep)


def write(report: Path | None, figures: Path | None, document: Mapping[str, Any], *, of: str = "report") -> Page | None:
    """Write the page of a report, and its figures, if there is a place for them; the page, None where there is none.

    document: as `--format json` prints · of: what it was read from. What a run found is printed before. Raises
    `UsageError` where the report is none, and where the files cannot be written.
    """
    if report is None and figures is None:
        return None
    from easybalance_sim.report.content import made_by
    from easybalance_sim.report.pages import page_of

    page = page_of(document, made_by(command_line()), of)
    try:
        _draw(page, report, figures)
    except OSError as error:
        what = f"the page or its figures cannot be written: {error.strerror}"
        raise UsageError(what, where=str(report or figures), fix="make room, or name another place") from error
    return page


def _draw(page: Page, report: Path | None, figures: Path | None) -> None:
    from easybalance_sim.files import write_text
    from easybalance_sim.report.figure_files import write_figures
    from easybalance_sim.report.html.render import html_of

    places = (report is not None) + (figures is not None)
    drawn = Console().progress("drawing", Amount(places * len(page.figures()), "figures"))
    if report is not None:
        write_text(report, html_of(page, drawn))
    if figures is not None:
        write_figures(page, figures, drawn=drawn)


def command_line() -> str:
    """What was typed, as a shell takes it."""
    return shlex.join(["ebsim", *sys.argv[1:]])


def _require_page(path: Path, keep: Sequence[Path], flag: str) -> None:
    from easybalance_sim.files import require_place

    if path.suffix.lower() not in SUFFIXES:
        raise UsageError("a page is a .html file", where=str(path), fix=f"name it {flag} {path.stem}.html")
    if any(_place(path) == _place(one) for one in keep):
        raise UsageError("the run reads or writes this file", where=str(path), fix=f"choose another {flag}")
    require_place(path, keep, flag=flag)


def _require_folder(path: Path, keep: Sequence[Path]) -> None:
    """A folder that is there and can be written, or whose parent can."""
    from easybalance_sim.files import require_place

    flag = "--figures"
    if any(_place(path) == _place(one) for one in keep):
        raise UsageError("the run reads or writes this", where=str(path), fix=f"choose another {flag}")
    if path.exists() and not path.is_dir():
        raise UsageError("is a file, not a folder", where=str(path), fix=f"name a folder with {flag}")
    inside = path if path.is_dir() else path.parent
    require_place(inside / ".figures", flag=flag)


def _place(path: Path) -> str:
    return os.path.realpath(path)
