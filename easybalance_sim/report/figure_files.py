"""The figures of a page as files of their own, for slides and documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from easybalance_sim.errors import UsageError
from easybalance_sim.files import replacing, require_place
from easybalance_sim.report.canvas import png_of, svg_of
from easybalance_sim.report.content import Figure, Page

KINDS = ("svg", "png")


def write_figures(
    page: Page, folder: Path, kinds: Sequence[str] = KINDS, *, drawn: Callable[[int], object] = bool
) -> tuple[Path, ...]:
    """Write NAME.svg, NAME.png and NAME.csv of every figure into `folder`, which is made when it is missing.

    Every file is written whole or not at all; other files in the folder stay. drawn: told 1 with every figure
    that is there. Returns the paths, figure by figure.
    Raises `UsageError` for an unknown kind, when the folder cannot be made, and before anything is drawn when it cannot
    be written.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f"no kind {unknown[0]!r} of figure files", fix=f"choose among {', '.join(KINDS)}")
    _make(folder)
    paths: list[Path] = []
    for figure in page.figures():
        for kind in (*kinds, "csv"):
            paths.append(folder / f"{figure.name}.{kind}")
            with replacing(paths[-1]) as temporary:
                temporary.write_bytes(figure_bytes(figure, kind))
        drawn(1)
    return tuple(paths)


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as a file of one of `KINDS`, or its data as "csv". Raises `UsageError` for another kind."""
    if kind == "png":
        return png_of(figure.chart, figure.name)
    if kind == "svg":
        return svg_of(figure.chart, figure.name).encode()
    if kind == "csv":
        return figure.chart.table().csv().encode()
    raise UsageError(f"no kind {kind!r} of figure files", fix=f"choose among {', '.join((*KINDS, 'csv'))}")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"no folder can be made here: {error.strerror}"
        raise UsageError(what, where=str(folder), fix="name another folder") from error
    require_place(folder / "figure.svg", flag="folder")
