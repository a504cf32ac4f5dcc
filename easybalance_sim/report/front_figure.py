"""The figure of `ebsim offset`: balance of a step against the price, lossless mechanisms at zero."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from easybalance_sim.report.sweep_figure import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR_MNAT = 2.0
"""The axis is linear up to here: below, nothing was told from zero when prices were measured."""

DEAR_MNAT = 10.0
"""What costs more is named, too, so that nobody has to guess which mechanisms these are."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A mechanism. loss: (low, high) mnat · on_front: nothing beats it · kind: lossless, lossy or floor · slots: those
    of more memory are drawn as squares."""

    name: str
    imbalance: float
    loss: tuple[float, float]
    on_front: bool
    kind: str
    slots: int

    @property
    def middle(self) -> float:
        """mnat, where the mark is drawn; never below zero."""
        return max(0.0, sum(self.loss) / 2)


def marks_of(report: Mapping[str, Any], axis: str = "step_mean") -> tuple[Mark, ...]:
    """What is drawn, as plain numbers."""
    front = next(one for one in report["front"]["fronts"] if one["axis"] == axis)
    best = {point["name"] for point in front["points"]}
    return tuple(_mark(row, axis, best) for row in report["front"]["rows"])


def svg_of(report: Mapping[str, Any]) -> str:
    """The figure as SVG text, the same bytes for the same report."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure_of(report).savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def figure_of(report: Mapping[str, Any]) -> Figure:
    """One panel: busiest rank over mean rank of a step, against the loss band."""
    marks = marks_of(report)
    figure = Figure(figsize=(10.5, 6.2), layout="constrained")
    axes = figure.subplots()
    few = min(mark.slots for mark in marks)
    for mark in marks:
        _draw(axes, mark, more_memory=mark.slots > few)
    named = [mark for mark in marks if mark.on_front or mark.middle > DEAR_MNAT]
    _name(axes, sorted(named, key=lambda mark: mark.imbalance))
    axes.set_xscale("symlog", linthresh=LINEAR_MNAT)
    axes.set_xlim(-0.6, None)
    axes.set_xticks([0, 1, 2, 5, 10, 20, 50, 100, 200, 500], minor=False)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("loss, thousandths of a nat (band over proxies, calibrated on a 14 M model) →")
    axes.set_ylabel("busiest / mean rank of a step")
    axes.grid(alpha=0.25, linewidth=0.6)
    for label, colour in (("lossless", COLOURS[0]), ("lossy", COLOURS[1]), ("floor, nothing to deploy", COLOURS[5])):
        axes.plot([], [], linestyle="", marker="o", color=colour, label=label)
    axes.plot([], [], linestyle="", marker="s", color=COLOURS[0], label="more slots")
    axes.legend(loc="upper left", frameon=False)
    figure.suptitle("Balance and its price: filled marks are beaten by nothing", x=0.01, ha="left", fontsize=11.5)
    return figure


def _mark(row: Mapping[str, Any], axis: str, best: set[str]) -> Mark:
    band = row["price"]["loss_nats"]
    return Mark(
        name=row["name"],
        imbalance=float(row["balance"][axis]),
        loss=(float(band["low_nats"]) * 1e3, float(band["high_nats"]) * 1e3),
        on_front=row["name"] in best,
        kind="floor" if row["floor"] else "lossless" if row["lossless"] else "lossy",
        slots=int(row["slots"]),
    )


def _draw(axes: Axes, mark: Mark, *, more_memory: bool) -> None:
    colour = {"lossless": COLOURS[0], "lossy": COLOURS[1], "floor": COLOURS[5]}[mark.kind]
    low, high = (max(0.0, end) for end in mark.loss)
    if high > low:
        axes.plot([low, high], [mark.imbalance] * 2, color=colour, alpha=0.35, linewidth=1.2)
    axes.plot(
        [mark.middle],
        [mark.imbalance],
        marker="s" if more_memory else "o",
        markersize=6,
        color=colour,
        mfc=colour if mark.on_front else "white",
    )


def _name(axes: Axes, marks: Sequence[Mark]) -> None:
    """Names of the front, spread so that they do not lie on one another."""
    low, high = axes.get_ylim()
    least, last = (high - low) * 0.032, -1e9
    for mark in marks:
        last = max(mark.imbalance, last + least)
        right = max(mark.loss[1], mark.middle, 0.0) * 1.06 + 0.25
        dear = mark.middle > DEAR_MNAT
        axes.annotate(
            mark.name,
            (mark.middle, mark.imbalance),
            xytext=(max(0.0, mark.loss[0]) / 1.06 if dear else right, last),
            fontsize=8.5,
            va="center",
            ha="right" if dear else "left",
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#888888"},
        )
