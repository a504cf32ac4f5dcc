"""Choices by price and worth as points of a front: which are beaten, and beyond which more is hardly worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from easybalance_sim.report.charts.front import Point
from easybalance_sim.sweep.knee import Gain, knee


@dataclass(frozen=True, kw_only=True)
class Choice:
    """name · price: less is better · worth: more is better."""

    name: str
    price: float
    worth: float


def marked(choices: Sequence[Choice], taken: str) -> tuple[Point, ...]:
    """Points by rising price with the front and its knee (see `sweep.knee.RULE`, against the cheapest). taken: the name
    of the one that was chosen."""
    ranked = sorted(choices, key=lambda one: (one.price, -one.worth))
    gains = [Gain(saved=one.worth - ranked[0].worth, noise=0.0) for one in ranked]
    found = knee(gains, [one.price for one in ranked], [False] * len(ranked))
    points: list[Point] = []
    best = float("-inf")
    for place, one in enumerate(ranked):
        points.append(
            Point(
                name=one.name,
                x=one.price,
                y=one.worth,
                on_front=one.worth > best,
                taken=one.name == taken,
                knee=place == found,
            )
        )
        best = max(best, one.worth)
    return tuple(points)
