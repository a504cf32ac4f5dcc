"""Horizontal bars, one group per row, one bar per series, each with its number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from easybalance_sim.report.canvas import BEHIND_LETTERS, INK, SERIES, WIDTH, short
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
        """One row per bar, and one of the bound, which belongs to no row."""
        rows: list[tuple[Cell, ...]] = []
        for series in self.series:
            spread = series.spread or (None,) * len(self.rows)
            for name, value, ends in zip(self.rows, series.values, spread, strict=True):
                rows.append((series.name, name, value, *(ends or (None, None))))
        if self.bound is not None:
            rows.append((self.bound[1], None, self.bound[0], None, None))
        spreads = any(series.spread for series in self.series)
        columns = ("series", self.row, self.value, *(("low", "high") if spreads else ()))
        return DataTable(columns=columns, rows=tuple(row[: len(columns)] for row in rows))

    def draw(self, drawing: Figure) -> None:
        """One panel, first row and first series on top."""
        axes = drawing.subplots()
        thick = 0.8 / len(self.series)
        for number, (series, colour) in enumerate(zip(self.series, _colours(len(self.series)), strict=True)):
            shift = (number - (len(self.series) - 1) / 2) * thick
            axes.barh(0, 0, left=self.start, color=colour, label=series.name)
            self._draw_series(axes, series, colour, shift, thick * 0.9)
        if self.bound is not None:
            axes.axvline(self.bound[0], color=INK, linewidth=0.9, linestyle="--", label=self.bound[1])
        axes.set_yticks(range(len(self.rows)), labels=[short(row) for row in self.rows])
        axes.set_ylim(len(self.rows) - 0.5, -0.5)
        axes.set_xlabel(self.value, loc="right")
        axes.set_xlim(*self._limits())
        if len(self.series) > 1 or self.bound is not None:
            drawing.legend(loc="outside upper left", ncols=2)

    def _limits(self) -> tuple[float, float]:
        """From the lowest to the highest, with place for numbers to the right."""
        ends = [end for one in self.series for spread in one.spread for end in spread or ()]
        values = [value for one in self.series for value in one.values] + [self.bound[0] if self.bound else None, *ends]
        drawn = [self.start, *(value for value in values if _is_drawn(value))]
        return min(drawn), max(drawn) + (0.16 * (max(drawn) - min(drawn)) or 1.0)

    def _draw_series(self, axes: Axes, series: Series, colour: str, shift: float, thick: float) -> None:
        spread = series.spread or (None,) * len(self.rows)
        for place, (value, ends) in enumerate(zip(series.values, spread, strict=True)):
            if not _is_drawn(value):
                continue
            axes.barh(place + shift, value - self.start, left=self.start, height=thick, color=colour)
            if ends is not None:
                axes.plot(ends, (place + shift,) * 2, color=INK, linewidth=1.0, marker="|", markersize=5)
            axes.annotate(
                self.form.format(value), (max((value, self.start, *(ends or ()))), place + shift), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=8, bbox=BEHIND_LETTERS,
            )  # fmt: skip


def _is_drawn(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _colours(count: int) -> tuple[str, ...]:
    return (SERIES * (1 + count // len(SERIES)))[:count]
