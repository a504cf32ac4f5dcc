"""Lines under one another over one x axis: what happened at the same time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from easybalance_sim.report.canvas import WIDTH
from easybalance_sim.report.charts.lines import Event, Lines
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EACH, NAMED = 1.35, 1.5
"""Inches of a panel; how much higher the first is where names of events stand in it."""


@dataclass(frozen=True, kw_only=True)
class Panels:
    """panels: of lines with the same names in the same order, over the same x; the events of the first are named."""

    panels: tuple[Lines, ...]

    @property
    def size(self) -> tuple[float, float]:
        """Inches: higher with more panels."""
        return WIDTH, 0.8 + EACH * sum(self._heights())

    def table(self) -> DataTable:
        """One row per point, event and bound of each panel: what the panel shows, kind, name, x, value."""
        rows: list[tuple[Cell, ...]] = [(lines.y, *row) for lines in self.panels for row in lines.table().rows]
        return DataTable(columns=("shows", "kind", "name", self.panels[0].x, "value"), rows=tuple(rows))

    def draw(self, drawing: Figure) -> None:
        """One axes per panel, the legend of the first over all, the x axis named once."""
        found = np.atleast_1d(drawing.subplots(len(self.panels), 1, sharex=True, height_ratios=self._heights()))
        for place, (axes, lines) in enumerate(zip(found, self.panels, strict=True)):
            (_unnamed(lines) if place else lines).plot(axes)
            axes.set_ylabel("")
            axes.set_title(lines.y)
        found[-1].set_xlabel(self.panels[0].x)
        if len(self.panels[0].lines) > 1:
            handles, names = found[0].get_legend_handles_labels()
            drawing.legend(handles, names, loc="outside upper left", ncols=3)

    def _heights(self) -> list[float]:
        """Over that of a panel."""
        return [NAMED if self.panels[0].events else 1.0, *([1.0] * (len(self.panels) - 1))]


def _unnamed(lines: Lines) -> Lines:
    """Events are named once."""
    return replace(lines, events=tuple(Event(x=event.x, name="") for event in lines.events))
