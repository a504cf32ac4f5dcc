"""Horizontal bars, one group per row, one bar per series, each with its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easybalance_sim.report.canvas import INK, SERIES, WIDTH
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Series:
    """One bar per row; None = no bar. spread: (low, high) of each bar, empty = exact."""

    name: str
    values: tuple[float | None, ...]
    spread: tuple[tuple[float, float] | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bars:
    """row: what the rows are · value: what is measured, with its unit · form: of the numbers · start: where bars begin
    (1 for ratios) · bound: (value, name) of a line across."""

    rows: tuple[str, ...]
    row: str
    series: tuple[Series, ...]
    value: str
    form: str = "{:,.2f}"
    start: float = 0.0
    bound: tuple[float, str] | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Inches: higher with more bars."""
        return WIDTH, 1.0 + 0.21 * len(self.rows) * len(self.series) + 0.1 * len(self.rows)

    def table(self) -> DataTable:
        """One row per bar."""
        rows: list[tuple[Cell, ...]] = []
        for series in self.series:
            spread = series.spread or (None,) * len(self.rows)
            for name, value, ends in zip(self.rows, series.values, spread, strict=True):
                rows.append((series.name, name, value, *(ends or (None, None))))
        spreads = any(series.spread for series in self.series)
        columns = ("series", self.row, self.value, *(("low", "high") if spreads else ()))
        return DataTable(columns=columns, rows=tuple(row[: len(columns)] for row in rows))

    def draw(self, drawing: Figure) -> None:
        """One panel, first row and first series on top."""
        axes = drawing.subplots()
        thick = 0.8 / len(self.series)
        for number, (series, colour) in enumerate(zip(self.series, SERIES, strict=False)):
            spread = series.spread or (None,) * len(self.rows)
            for place, (value, ends) in enumerate(zip(series.values, spread, strict=True)):
                if value is None:
                    continue
                y = place + (number - (len(self.series) - 1) / 2) * thick
                axes.barh(y, value - self.start, left=self.start, height=thick * 0.9, color=colour)
                if ends is not None:
                    axes.plot(ends, (y, y), color=INK, linewidth=1.0, marker="|", markersize=5)
                right = max(value, self.start, *(ends or ()))
                axes.annotate(
                    self.form.format(value), (right, y), xytext=(3, 0), textcoords="offset points",
                    va="center", fontsize=8,
                )  # fmt: skip
            axes.barh(0, 0, left=self.start, color=colour, label=series.name)
        if self.bound is not None:
            axes.axvline(self.bound[0], color=INK, linewidth=0.9, linestyle="--", label=self.bound[1])
        axes.set_yticks(range(len(self.rows)), labels=list(self.rows))
        axes.invert_yaxis()
        axes.set_xlabel(self.value)
        axes.margins(x=0.14)
        axes.set_xlim(
            left=min(self.start, *(value for one in self.series for value in one.values if value is not None))
        )
        if len(self.series) > 1 or self.bound is not None:
            drawing.legend(loc="outside upper left", ncols=2)
