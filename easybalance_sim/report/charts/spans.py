"""Values that are known from one number to another, against one that means no difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easybalance_sim.report.canvas import BEHIND_LETTERS, FAINT, INK, SERIES, WIDTH
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Span:
    """name: of the row · middle: the value itself · low, high: within which it is, both of them the middle = exact."""

    name: str
    low: float
    middle: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Spans:
    """row: what the rows are · value: what is measured, with its unit · neutral: (value, name) of no difference · form:
    of the numbers."""

    spans: tuple[Span, ...]
    row: str
    value: str
    neutral: tuple[float, str]
    form: str = "{:,.2f}"

    @property
    def size(self) -> tuple[float, float]:
        """Inches: higher with more rows."""
        return WIDTH, 0.95 + 0.29 * len(self.spans)

    def table(self) -> DataTable:
        """One row per span, and one of no difference, which has no ends."""
        rows: list[tuple[Cell, ...]] = [(one.name, one.low, one.middle, one.high) for one in self.spans]
        rows.append((self.neutral[1], None, self.neutral[0], None))
        return DataTable(columns=(self.row, "low", self.value, "high"), rows=tuple(rows))

    def draw(self, drawing: Figure) -> None:
        """A line per span, a mark at its middle, the number beside it; first row on top."""
        axes = drawing.subplots()
        axes.axvline(self.neutral[0], color=INK, linewidth=0.9, linestyle="--", label=self.neutral[1])
        for place, span in enumerate(self.spans):
            axes.plot((span.low, span.high), (place, place), color=SERIES[0], linewidth=2.2, alpha=0.45, marker="|")
            axes.plot(span.middle, place, "o", color=SERIES[0], markersize=5.5)
            axes.annotate(
                self.form.format(span.middle), (max(span.high, span.middle), place), xytext=(6, 0),
                textcoords="offset points", va="center", fontsize=8, bbox=BEHIND_LETTERS,
            )  # fmt: skip
        axes.set_yticks(range(len(self.spans)), labels=[span.name for span in self.spans])
        axes.set_ylim(len(self.spans) - 0.5, -0.5)
        axes.set_xlabel(self.value)
        axes.grid(axis="x", color=FAINT)
        axes.margins(x=0.14)
        drawing.legend(loc="outside upper left")
