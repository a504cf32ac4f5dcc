"""What wholes are made of: a horizontal bar per whole, its parts end to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easybalance_sim.report.canvas import PAPER, SERIES, WIDTH
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOM = 0.055
"""Share of the longest bar from which a part has room for its number."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """name: of what the part is · values: one per whole, none below 0."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """rows: the wholes · row: what they are · value: what is added up, with its unit · form: of the numbers."""

    rows: tuple[str, ...]
    row: str
    parts: tuple[Part, ...]
    value: str
    form: str = "{:,.1f}"

    @property
    def size(self) -> tuple[float, float]:
        """Inches: higher with more bars and more names of parts."""
        return WIDTH, 0.75 + 0.38 * len(self.rows) + 0.2 * -(-len(self.parts) // 3)

    def table(self) -> DataTable:
        """One row per part of a whole."""
        rows: list[tuple[Cell, ...]] = [
            (row, part.name, value) for part in self.parts for row, value in zip(self.rows, part.values, strict=True)
        ]
        return DataTable(columns=(self.row, "part", self.value), rows=tuple(rows))

    def draw(self, drawing: Figure) -> None:
        """One panel, first row on top; parts have their number where there is room."""
        axes = drawing.subplots()
        ends = [0.0] * len(self.rows)
        longest = max(sum(part.values[place] for part in self.parts) for place in range(len(self.rows)))
        for part, colour in zip(self.parts, SERIES, strict=False):
            axes.barh(range(len(self.rows)), part.values, left=ends, height=0.62, color=colour, label=part.name)
            for place, value in enumerate(part.values):
                if value > ROOM * longest:
                    middle = ends[place] + value / 2
                    text = self.form.format(value)
                    axes.text(middle, place, text, ha="center", va="center", fontsize=8, color=PAPER)
                ends[place] += value
        axes.set_yticks(range(len(self.rows)), labels=list(self.rows))
        axes.invert_yaxis()
        axes.set_xlabel(self.value)
        drawing.legend(loc="outside upper left", ncols=3, columnspacing=1.2, handlelength=1.2)
