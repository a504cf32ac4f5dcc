"""Lines over time or another axis, with events and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easybalance_sim.report.canvas import BEHIND_LETTERS, INK, SERIES, WIDTH, short
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EVENT_LETTERS = 16
"""As many fit into a low panel; the data have whole names."""
LABEL, ROOM = 9.5, 290
"""Points of an event's name sideways, and of the x axis, about."""
NAMED_EVENTS = 8
"""More events than that are marked, not named; the data names all."""

EVENT = SERIES[5]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One series; x and y as long as each other, y None = a gap · steps: constant up to the next point · dashed: a
    bound, nothing to have · dots: points are marked."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    steps: bool = False
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened at x."""

    x: float
    name: str


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A line across at y, with its name."""

    y: float
    name: str


@dataclass(frozen=True, kw_only=True)
class Lines:
    """x, y: what the axes show, with units · y_from: where the y axis begins, None = where the data do · log: powers of
    two on the y axis."""

    lines: tuple[Line, ...]
    x: str
    y: str
    events: tuple[Event, ...] = ()
    bounds: tuple[Bound, ...] = ()
    y_from: float | None = None
    log: bool = False

    @property
    def size(self) -> tuple[float, float]:
        """Inches: higher where the legend is."""
        return WIDTH, 3.1 + 0.19 * max(0, -(-len(self.lines) // 2) - 2)

    def table(self) -> DataTable:
        """One row per point, event and bound: kind, name, x, y."""
        rows: list[tuple[Cell, ...]] = []
        for line in self.lines:
            rows += [("line", line.name, x, y) for x, y in zip(line.x, line.y, strict=True)]
        rows += [("event", event.name, event.x, None) for event in self.events]
        rows += [("bound", bound.name, None, bound.y) for bound in self.bounds]
        return DataTable(columns=("kind", "name", self.x, self.y), rows=tuple(rows))

    def draw(self, drawing: Figure) -> None:
        """One panel, the legend over it."""
        axes = drawing.subplots()
        self.plot(axes)
        axes.set_xlabel(self.x)
        if len(self.lines) > 1:
            drawing.legend(loc="outside upper left", ncols=2)

    def plot(self, axes: Axes) -> None:
        """All but the label of the x axis and the legend."""
        for line, colour in zip(self.lines, SERIES * (1 + len(self.lines) // len(SERIES)), strict=False):
            self._plot(axes, line, colour)
        for bound in self.bounds:
            axes.axhline(bound.y, color=INK, linewidth=0.9, linestyle="--")
            axes.annotate(
                bound.name, (1, bound.y), xycoords=("axes fraction", "data"), xytext=(0, 4),
                textcoords="offset points", ha="right", fontsize=8, bbox=BEHIND_LETTERS,
            )  # fmt: skip
        if self.log:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter("{x:g}")
        self._mark_events(axes)
        if self.y_from is not None and self.y_from < axes.get_ylim()[1]:
            axes.set_ylim(bottom=self.y_from)
        axes.set_ylabel(self.y)
        axes.grid(axis="y")
        axes.margins(x=0.01)

    def _plot(self, axes: Axes, line: Line, colour: str) -> None:
        heights = [float("nan") if value is None else value for value in line.y]
        axes.plot(
            line.x, heights, color=colour, linewidth=1.3, label=line.name, linestyle="--" if line.dashed else "-",
            drawstyle="steps-post" if line.steps else "default", marker="o" if line.dots else "", markersize=3.5,
        )  # fmt: skip

    def _mark_events(self, axes: Axes) -> None:
        for event in self.events:
            axes.axvline(event.x, color=EVENT, linewidth=0.9, linestyle=":", zorder=1)
        for x, names in self._names(*axes.get_xlim()):
            axes.annotate(
                "\n".join(short(name, EVENT_LETTERS) for name in names), (x, 1), xycoords=("data", "axes fraction"),
                xytext=(2, -2), textcoords="offset points", rotation=90, va="top", fontsize=7.5, bbox=BEHIND_LETTERS,
                zorder=1.5,
            )  # fmt: skip

    def _names(self, left: float, right: float) -> list[tuple[float, list[str]]]:
        """Where the names of events begin; those that would lie on one another stand side by side, each once."""
        each = (right - left) * LABEL / ROOM
        found: list[tuple[float, list[str]]] = []
        for event in sorted(self.events, key=lambda one: one.x):
            if not event.name or len(self.events) > NAMED_EVENTS:
                continue
            if not found or event.x >= found[-1][0] + each * len(found[-1][1]):
                found.append((event.x, [event.name]))
            elif event.name not in found[-1][1]:
                found[-1][1].append(event.name)
        return found
