"""Choices by price and worth: which are beaten by none, which was taken, where the knee is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from easybalance_sim.report.canvas import INK, SERIES, WIDTH
from easybalance_sim.report.content import Cell, DataTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEAR, LETTER, AXES_POINTS = 0.4, 0.055, 190
"""Shares of the axes within which names would touch, sideways and upwards; their height in points, about."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A choice. on_front: nothing is as good in both and better in one · taken: what the run chose · knee: more is
    hardly worth its price · named: whether the drawing says its name."""

    name: str
    x: float
    y: float
    on_front: bool = False
    taken: bool = False
    knee: bool = False
    named: bool = True


@dataclass(frozen=True, kw_only=True)
class Front:
    """Curves of points, less being better on the x axis. curves: name and points · y: says itself what is better ·
    joined: whether neighbours are joined by a line (points that are an ordered series) · loose: curves that are not,
    all the same · least_span: of the y axis, relative to its values, so that small differences look small."""

    curves: tuple[tuple[str, tuple[Point, ...]], ...]
    x: str
    y: str
    joined: bool = False
    loose: tuple[str, ...] = ()
    least_span: float = 0.0

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""
        return WIDTH, 3.6

    def table(self) -> DataTable:
        """One row per point."""
        rows: list[tuple[Cell, ...]] = [
            (curve, point.name, point.x, point.y, int(point.on_front), int(point.taken), int(point.knee))
            for curve, points in self.curves
            for point in points
        ]
        return DataTable(columns=("curve", "name", self.x, self.y, "on_front", "taken", "knee"), rows=tuple(rows))

    def draw(self, drawing: Figure) -> None:
        """Filled marks are beaten by nothing, the ring is the taken one, the square the knee."""
        axes = drawing.subplots()
        for (name, points), colour in zip(self.curves, SERIES * len(self.curves), strict=False):
            if self.joined and name not in self.loose:
                axes.plot([p.x for p in points], [p.y for p in points], color=colour, linewidth=1.2, zorder=1)
            for point in points:
                fill = colour if point.on_front else "none"
                axes.plot(point.x, point.y, "o", markersize=6, mfc=fill, mec=colour, zorder=3)
            axes.plot([], [], "o", color=colour, label=name)
        every = [point for _, points in self.curves for point in points]
        for kind, mark, size in (("taken", "o", 13), ("knee", "s", 12)):
            marked = [point for point in every if getattr(point, kind)]
            for point in marked:
                axes.plot(point.x, point.y, mark, markersize=size, mfc="none", mec=INK, mew=1.1, zorder=2)
            if marked:
                axes.plot([], [], mark, markersize=9, mfc="none", mec=INK, label=kind)
        axes.set_xlabel(f"{self.x} (less is better)")
        axes.set_ylabel(self.y)
        axes.grid(axis="y")
        axes.margins(x=0.12, y=0.14)
        self._keep_calm(axes)
        self._name(axes, every)
        drawing.legend(loc="outside upper left", ncols=2)

    def _keep_calm(self, axes: Axes) -> None:
        low, high = axes.get_ylim()
        missing = self.least_span * (low + high) / 2 - (high - low)
        if missing > 0:
            axes.set_ylim(low - missing / 2, high + missing / 2)

    def _name(self, axes: Axes, points: list[Point]) -> None:
        """Names beside their marks, to the left in the right half, raised so that they do not lie on one another."""
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        placed: list[tuple[float, float]] = []
        for point in sorted((one for one in points if one.name and one.named), key=lambda one: (one.y, one.x)):
            across, up = (point.x - left) / (right - left), (point.y - low) / (high - low)
            start = up
            while any(abs(across - x) < NEAR and abs(up - y) < LETTER for x, y in placed):
                up += LETTER
            placed.append((across, up))
            far = 12 if point.taken or point.knee else 8
            aside = -far if across > 0.5 else far
            axes.annotate(
                point.name, (point.x, point.y), xytext=(aside, (up - start) * AXES_POINTS), textcoords="offset points",
                fontsize=8, va="center", ha="right" if aside < 0 else "left",
            )  # fmt: skip
