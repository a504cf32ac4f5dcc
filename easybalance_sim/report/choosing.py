"""Choices by price and worth as points of a front: which are beaten, and beyond which more is hardly worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from easybalance_sim.report.charts.front import Point

ABOVE_LINE = 0.1
"""Share of both ranges by which a point must lie off the straight line between the ends to be a knee."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """name · price: less is better · worth: more is better."""

    name: str
    price: float
    worth: float


def marked(choices: Sequence[Choice], taken: str) -> tuple[Point, ...]:
    """Points by rising price with the front and its knee. taken: the name of the one that was chosen."""
    ranked = sorted(choices, key=lambda one: (one.price, -one.worth))
    points: list[Point] = []
    best = float("-inf")
    for one in ranked:
        points.append(
            Point(
                name=one.name,
                x=one.price,
                y=one.worth,
                on_front=one.worth > best,
                taken=one.name == taken,
            )
        )
        best = max(best, one.worth)
    found = knee([(point.x, point.y) for point in points if point.on_front])
    return tuple(replace(point, knee=point.on_front and (point.x, point.y) == found) for point in points)


def knee(front: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """What a page calls the knee of the points (price, worth; more worth is better) that nothing beats: the one
    farthest above the straight line from the cheapest to the best, both axes scaled to 1.

    None where no point between the two lies far above. Runs that decide by a knee (`sweep.knee`, the front of
    mechanisms) find it before, among what is more than noise; their pages show that one.
    """
    points = sorted(set(front))
    if len(points) < 3:
        return None
    (left, low), (right, high) = points[0], points[-1]
    if right <= left or high <= low:
        return None
    above = {one: (one[1] - low) / (high - low) - (one[0] - left) / (right - left) for one in points[1:-1]}
    best = max(above, key=lambda one: above[one])
    return best if above[best] > ABOVE_LINE else None
