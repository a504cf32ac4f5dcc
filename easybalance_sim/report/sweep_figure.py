"""The figure of a sweep: what a step costs and how uneven it is, against the KV cache that redundant slots take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report import canvas
from easybalance_sim.report.charts.front import Front, Point
from easybalance_sim.report.charts.sheet import Sheet

PANELS = {"imbalance": "P99 rank imbalance of a window", "seconds": "P99 MoE time of a step, µs"}
LEAST_SPAN = 0.05
"""Of an axis, relative to its values."""
BY_LAYER = "slots by layer"


def svg_of(report: Mapping[str, Any]) -> str:
    """Both charts side by side as SVG text, the same bytes for the same report."""
    title = f"Redundant slots: {subject(report)} (less is better)"
    return canvas.svg_of(
        Sheet(title=title, rows=(tuple((PANELS[by], chart_of(report, by)) for by in PANELS),)), "sweep"
    )


def chart_of(report: Mapping[str, Any], by: str) -> Front:
    """by: a key of `PANELS`. Points are named after their slots per rank; the ring is at the knee that counts, or at
    zero redundancy where there is none; the square at the knee of this chart."""
    in_tokens = counts_tokens(report)
    curves: list[tuple[str, tuple[Point, ...]]] = []
    named: set[tuple[int, ...]] = set()
    for curve in report["curves"]:
        # Windows of other lengths have the same slots: their numbers would lie on one another.
        slots = tuple(point["slots_per_rank"] for point in curve["points"])
        curves.append((_name(curve), _points(curve, by, report["gain_by"], in_tokens, slots in named)))
        named.add(slots)
    by_layer = _by_layer(report, by, in_tokens)
    return Front(
        curves=(*curves, *(((BY_LAYER, by_layer),) if by_layer else ())),
        x="KV-cache tokens lost per rank, thousands" if in_tokens else "expert memory added per rank, MB",
        y=PANELS[by],
        joined=True,
        loose=(BY_LAYER,),
        least_span=LEAST_SPAN,
    )


def counts_tokens(report: Mapping[str, Any]) -> bool:
    """Whether the memory of slots is known in tokens of KV cache."""
    return all(point["kv_tokens_lost"] is not None for curve in report["curves"] for point in curve["points"])


def subject(report: Mapping[str, Any]) -> str:
    """Of what the sweep is, in words."""
    trace = report["trace"]
    name = report["model"]["name"] or "unnamed model"
    return f"{name}, {trace['layers']} MoE layers × {trace['experts']} experts, {report['profile']}"


def _name(curve: Mapping[str, Any]) -> str:
    return f"{curve['ranks']} ranks, {curve['windows']}"


def _points(curve: Mapping[str, Any], by: str, main: str, in_tokens: bool, nameless: bool) -> tuple[Point, ...]:
    points, first = curve["points"], curve["points"][0]
    knee, own = curve["knee"][main], curve["knee"][by]
    taken = 0 if knee is None else knee["point"]
    heights = [_height(point, by) for point in points]
    return tuple(
        Point(
            name="" if nameless else str(point["slots_per_rank"]),
            x=_paid(point, first, in_tokens),
            y=heights[place],
            # Points cost more and more: the front are those that no cheaper one equals.
            on_front=place == 0 or heights[place] < min(heights[:place]),
            taken=place == taken,
            knee=own is not None and place == own["point"],
        )
        for place, point in enumerate(points)
    )


def _by_layer(report: Mapping[str, Any], by: str, in_tokens: bool) -> tuple[Point, ...]:
    return tuple(
        Point(name="", x=_paid(point["per_layer"], curve["points"][0], in_tokens), y=_height(point["per_layer"], by))
        for curve in report["curves"]
        for point in curve["points"]
        if "per_layer" in point
    )


def _paid(row: Mapping[str, Any], first: Mapping[str, Any], in_tokens: bool) -> float:
    if in_tokens:
        return float(row["kv_tokens_lost"]) / 1e3
    return float(row["memory_bytes_per_rank"] - first["memory_bytes_per_rank"]) / 1e6


def _height(row: Mapping[str, Any], by: str) -> float:
    return float(row["rank_imbalance"]["p99"] if by == "imbalance" else row["step_us"]["p99"])
