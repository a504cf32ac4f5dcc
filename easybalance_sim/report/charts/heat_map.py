"""Heat maps: one value per row and column, in one or more panels under one colour scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap, Normalize, TwoSlopeNorm
from matplotlib.ticker import MaxNLocator

from easybalance_sim.arrays import FloatArray
from easybalance_sim.report.canvas import WIDTH
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

NUMBERS_UP_TO = 12
"""Columns up to which every cell shows its number."""
LARGE = 4096
"""Cells."""
DIM = 0.18
"""Luminance of a cell from which dark letters stand out more than light ones."""
DARK = "#010101"
"""Plain black would be left unsaid in an SVG and take the page's colour of letters."""
RISING = ListedColormap(colormaps["viridis"](np.linspace(0.2, 0.97, 240)), name="rising")
"""Without the darkest and the lightest, which a dark or a light page would swallow."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """title: over it, empty = none · values: float[Y, X], NaN = nothing there."""

    title: str
    values: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class HeatMap:
    """Panels of one shape, drawn under one another.

    rows, columns: their ids (layers, ranks, …) · row, column, value: what they are, in the singular, for axes and data
    · centre: the value that is neither high nor low, None = from the lowest to the highest · form: of numbers in cells.
    """

    panels: tuple[Panel, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    row: str
    column: str
    value: str
    centre: float | None = None
    form: str = "{:.2f}"

    @property
    def size(self) -> tuple[float, float]:
        """Inches: higher with more rows, to a limit."""
        each = min(max(0.14 * len(self.rows), 1.1), 3.4)
        return WIDTH, 0.75 + len(self.panels) * (each + 0.35)

    def table(self) -> DataTable:
        """One row per cell; of a large map one per row, with a column per column: a page must stay small."""
        if len(self.panels) * len(self.rows) * len(self.columns) > LARGE:
            return self._wide_table()
        named = len(self.panels) > 1
        rows: list[tuple[Cell, ...]] = []
        for panel in self.panels:
            first: tuple[Cell, ...] = (panel.title,) if named else ()
            for row, line in zip(self.rows, panel.values.tolist(), strict=True):
                for column, value in zip(self.columns, line, strict=True):
                    rows.append((*first, row, column, None if np.isnan(value) else value))
        return DataTable(columns=(*(("panel",) if named else ()), self.row, self.column, self.value), rows=tuple(rows))

    def _wide_table(self) -> DataTable:
        lines = (
            (panel.title, row, *(None if np.isnan(value) else value for value in line))
            for panel in self.panels
            for row, line in zip(self.rows, panel.values.tolist(), strict=True)
        )
        columns = (f"{self.value}: panel", self.row, *(f"{self.column} {column}" for column in self.columns))
        return DataTable(columns=columns, rows=tuple(lines))

    def draw(self, drawing: Figure) -> None:
        """One image per panel and a colour bar for all."""
        norm, colours = self._scale()
        found = np.atleast_1d(drawing.subplots(len(self.panels), 1, sharex=True))
        for axes, panel in zip(found, self.panels, strict=True):
            image = axes.imshow(panel.values, aspect="auto", interpolation="none", cmap=colours, norm=norm)
            self._dress(axes, panel, image)
        found[-1].set_xlabel(self.column)
        bar = drawing.colorbar(image, ax=list(found), fraction=0.05, pad=0.02)
        bar.set_label(self.value)
        if all(np.all(values[np.isfinite(values)] % 1 == 0) for values in (panel.values for panel in self.panels)):
            bar.locator = MaxNLocator(nbins=6, integer=True)
        # As paths the colour bar alone would be 50 kB.
        if bar.solids is not None:
            bar.solids.set_rasterized(True)
        bar.outline.set_visible(False)

    def _scale(self) -> tuple[Normalize, str | Colormap]:
        every = np.concatenate([panel.values[np.isfinite(panel.values)] for panel in self.panels])
        low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
        if self.centre is None:
            return Normalize(low, high if high > low else low + max(1.0, abs(low))), RISING
        away = max(self.centre - low, high - self.centre, abs(self.centre) * 1e-6, 1e-6)
        # Shares of a mean do not go below 0, and neither does their scale.
        bottom = max(self.centre - away, 0.0) if low >= 0 < self.centre else self.centre - away
        return TwoSlopeNorm(self.centre, bottom, self.centre + away), "RdYlBu_r"

    def _dress(self, axes: Axes, panel: Panel, image: AxesImage) -> None:
        axes.set_ylabel(self.row)
        if panel.title:
            axes.set_title(panel.title)
        _ticks(axes.yaxis, self.rows, 9)
        _ticks(axes.xaxis, self.columns, 13)
        axes.tick_params(length=2)
        for spine in axes.spines.values():
            spine.set_visible(False)
        if len(self.columns) <= NUMBERS_UP_TO and len(self.rows) <= NUMBERS_UP_TO:
            self._number(axes, panel, image)

    def _number(self, axes: Axes, panel: Panel, image: AxesImage) -> None:
        colours = np.asarray(image.to_rgba(panel.values))
        for (y, x), value in np.ndenumerate(panel.values):
            if not np.isfinite(value):
                continue
            light = colours[y, x, :3] ** 2.2 @ (0.2126, 0.7152, 0.0722) > DIM
            text = self.form.format(value)
            axes.text(x, y, text, ha="center", va="center", fontsize=7, color=DARK if light else "#ffffff")


def _ticks(axis: Any, ids: tuple[int, ...], most: int) -> None:
    every = max(1, -(-len(ids) // most))
    places = range(0, len(ids), every)
    axis.set_ticks(list(places), labels=[str(ids[place]) for place in places])
