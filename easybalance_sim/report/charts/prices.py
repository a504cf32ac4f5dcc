"""Mechanisms by what they balance and what they cost the model: most cost nothing, some very much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator, ScalarFormatter

from easybalance_sim.report.canvas import FAINT, INK, SERIES, WIDTH
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINEAR = 2.0
"""The axis of losses is linear up to here: below, nothing was told from zero when prices were measured."""
TICKS = (0, 2, 10, 50, 200)
NAME, NEAR = 0.17, 11.0
"""Inches of a name below; points within which numbers would touch."""
COLOURS = {"lossless": SERIES[0], "lossy": SERIES[1], "floor": SERIES[5]}
WORDS = {"lossless": "lossless", "lossy": "lossy", "floor": "floor, nothing to deploy"}


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A mechanism. imbalance: busiest over mean rank · loss: (low, high) thousandths of a nat · on_front: nothing beats
    it · knee: more loss buys little · kind: lossless, lossy or floor · slots: those of more memory are squares."""

    name: str
    imbalance: float
    loss: tuple[float, float]
    on_front: bool
    kind: str
    slots: int
    knee: bool = False

    @property
    def middle(self) -> float:
        """Thousandths of a nat, where the mark is drawn; never below zero."""
        return max(0.0, sum(self.loss) / 2)


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Less is better on both axes. named: marks that are numbered, with their names below · x, y: what the axes
    show."""

    marks: tuple[Mark, ...]
    named: frozenset[str]
    x: str = "loss, thousandths of a nat (less is better)"
    y: str = "busiest / mean rank of a step"

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""
        return WIDTH, 4.1 + NAME * len(self._numbered())

    def table(self) -> DataTable:
        """One row per mark."""
        rows: list[tuple[Cell, ...]] = [
            (one.name, one.kind, one.slots, *one.loss, one.imbalance, int(one.on_front), int(one.knee))
            for one in self.marks
        ]
        columns = ("mechanism", "kind", "slots", "loss_low_mnat", "loss_high_mnat", self.y, "on_front", "knee")
        return DataTable(columns=columns, rows=tuple(rows))

    def draw(self, drawing: Figure) -> None:
        """Filled marks are beaten by nothing; a line is the band of the loss."""
        axes = drawing.subplots()
        few = min(mark.slots for mark in self.marks)
        for mark in self.marks:
            _draw(axes, mark, more_memory=mark.slots > few)
        _scale(axes, max((mark.loss[1] for mark in self.marks), default=0.0))
        _number(axes, self._numbered())
        axes.set_xlabel(self.x)
        axes.set_ylabel(self.y)
        axes.grid(color=FAINT, linewidth=0.6)
        for kind in dict.fromkeys(mark.kind for mark in self.marks):
            axes.plot([], [], linestyle="", marker="o", color=COLOURS[kind], label=WORDS[kind])
        if any(mark.slots > few for mark in self.marks):
            axes.plot([], [], linestyle="", marker="s", color=SERIES[0], label="more slots")
        drawing.legend(loc="outside upper left", ncols=2)
        names = [f"{number}   {mark.name}" for number, mark in enumerate(self._numbered(), 1)]
        if names:
            nothing = [Line2D([], [], linestyle="") for _ in names]
            drawing.legend(
                nothing, names, loc="outside lower left", ncols=1, handlelength=0, handletextpad=0, fontsize=8
            )

    def _numbered(self) -> list[Mark]:
        """By rising price, then by falling imbalance."""
        named = [mark for mark in self.marks if mark.name in self.named]
        return sorted(named, key=lambda mark: (mark.middle, -mark.imbalance))


def _scale(axes: Axes, most: float) -> None:
    axes.set_xscale("symlog", linthresh=LINEAR)
    axes.set_xlim(-0.3, max(2.5 * most, 5.0))
    axes.set_xticks([tick for tick in TICKS if tick <= max(2.5 * most, 5.0)], minor=False)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def _draw(axes: Axes, mark: Mark, *, more_memory: bool) -> None:
    colour = COLOURS[mark.kind]
    low, high = (max(0.0, end) for end in mark.loss)
    if high > low:
        axes.plot([low, high], [mark.imbalance] * 2, color=colour, alpha=0.35, linewidth=1.2)
    axes.plot(
        mark.middle, mark.imbalance, marker="s" if more_memory else "o", markersize=5.5, color=colour,
        mfc=colour if mark.on_front else "none", zorder=3,
    )  # fmt: skip
    if mark.knee:
        axes.plot(mark.middle, mark.imbalance, "s", markersize=12, mfc="none", mec=INK, mew=1.1, zorder=2, label="knee")


def _number(axes: Axes, marks: list[Mark]) -> None:
    """Numbers right of their marks, raised so that they do not lie on one another."""
    (low, high), scale = axes.get_ylim(), axes.transData
    placed: list[tuple[float, float]] = []
    for number, mark in enumerate(marks, 1):
        x, y = scale.transform((mark.middle, mark.imbalance))
        up = y
        while any(abs(x - other) < NEAR and abs(up - height) < NEAR for other, height in placed):
            up += NEAR
        placed.append((x, up))
        axes.annotate(
            str(number), (mark.middle, mark.imbalance), xytext=(7, up - y), textcoords="offset points", fontsize=8,
            va="center", fontweight="bold",
        )  # fmt: skip
    axes.set_ylim(low, high)
