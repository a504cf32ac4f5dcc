"""Several charts on one sheet with a title: a figure that stands alone."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from easybalance_sim.report.content import Cell, Chart, DataTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

LETTERS = 14
"""Of the sheet's title, in an inch."""
TITLE = 0.3
"""Inches of a chart's title."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """title: over all · rows: charts side by side, as many in every row, and their titles."""

    title: str
    rows: tuple[tuple[tuple[str, Chart], ...], ...]

    @property
    def size(self) -> tuple[float, float]:
        """Inches: those of its charts, with room for titles."""
        wide = max(sum(chart.size[0] for _, chart in row) for row in self.rows)
        return wide, sum(self._heights()) + 0.22 * len(self._lines(wide))

    def table(self) -> DataTable:
        """One row per cell of the charts' data: which chart, its row, the column and what stands there."""
        rows: list[tuple[Cell, ...]] = []
        for title, chart in (one for row in self.rows for one in row):
            data = chart.table()
            for number, row in enumerate(data.rows):
                rows += [(title, number, column, cell) for column, cell in zip(data.columns, row, strict=True)]
        return DataTable(columns=("chart", "row", "column", "value"), rows=tuple(rows))

    def draw(self, drawing: Figure) -> None:
        """A part of the sheet per chart."""
        shape = (len(self.rows), len(self.rows[0]))
        parts = np.asarray(drawing.subfigures(*shape, height_ratios=self._heights()), object).reshape(shape)
        for row, places in zip(self.rows, parts, strict=True):
            for (title, chart), place in zip(row, places, strict=True):
                # A part of a figure takes all that charts ask of a figure.
                chart.draw(cast("Figure", _titled(place, title, chart)))
        drawing.suptitle("\n".join(self._lines(self.size[0])), x=0.01, ha="left", fontsize=11.5)

    def _heights(self) -> list[float]:
        """Inches of every row."""
        return [max(chart.size[1] + (TITLE if title else 0) for title, chart in row) for row in self.rows]

    def _lines(self, wide: float) -> list[str]:
        return textwrap.wrap(self.title, int(LETTERS * wide))


def _titled(place: SubFigure, title: str, chart: Chart) -> SubFigure:
    """The room below the title: legends outside of axes would lie on a title of the same part."""
    if not title:
        return place
    above, below = np.asarray(place.subfigures(2, 1, height_ratios=(TITLE, chart.size[1])), object)
    above.text(0.03, 0.5, title, va="center", fontsize=10)
    return cast("SubFigure", below)
