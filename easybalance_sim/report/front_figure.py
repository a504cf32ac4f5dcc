"""The figure of `ebsim offset`: balance of a step against the price, lossless mechanisms at zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report import canvas
from easybalance_sim.report.charts.prices import Mark, Prices
from easybalance_sim.report.charts.sheet import Sheet

DEAR_MNAT = 10.0
"""What costs more is named, too, so that nobody has to guess which mechanisms these are."""
TITLES = {"step_mean": "mean over steps", "step_p99": "P99 over steps"}


def chart_of(report: Mapping[str, Any], axis: str = "step_mean") -> Prices:
    """The front by the mean or the P99 (`step_p99`) of the imbalance of a step."""
    marks = marks_of(report, axis)
    named = frozenset(mark.name for mark in marks if mark.on_front or mark.middle > DEAR_MNAT)
    return Prices(marks=marks, named=named, y=f"busiest / mean rank of a step, {TITLES[axis].partition(' ')[0]}")


def marks_of(report: Mapping[str, Any], axis: str = "step_mean") -> tuple[Mark, ...]:
    """What is drawn, as plain numbers."""
    front = front_by(report, axis)
    best = {point["name"] for point in front["points"]}
    return tuple(_mark(row, axis, best, front.get("knee")) for row in report["front"]["rows"])


def front_by(report: Mapping[str, Any], axis: str) -> Mapping[str, Any]:
    """What nothing beats by an axis of balance, and the knee; raises `KeyError` where the report has no such front."""
    fronts: dict[str, Mapping[str, Any]] = {one["axis"]: one for one in report["front"]["fronts"]}
    return fronts[axis]


def svg_of(report: Mapping[str, Any]) -> str:
    """The front by the mean as SVG text, the same bytes for the same report."""
    title = "Balance and its price: filled marks are beaten by nothing"
    return canvas.svg_of(Sheet(title=title, rows=((("", chart_of(report)),),)), "front")


def _mark(row: Mapping[str, Any], axis: str, best: set[str], knee: str | None) -> Mark:
    band = row["price"]["loss_nats"]
    return Mark(
        name=row["name"],
        imbalance=float(row["balance"][axis]),
        loss=(float(band["low_nats"]) * 1e3, float(band["high_nats"]) * 1e3),
        on_front=row["name"] in best,
        kind="floor" if row["floor"] else "lossless" if row["lossless"] else "lossy",
        slots=int(row["slots"]),
        knee=row["name"] == knee,
    )
