"""The highest request rate inside the SLO, by bisection.

A rate holds when the scenario's share of requests (`slo.share`) keeps both limits. From the scenario's own rate the
search goes up or down by a factor until one rate holds and one does not, then halves the ratio between them until it is
inside the tolerance. That more requests never do better is taken for granted; chance at the edge is inside what seeds
differ by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from easybalance_sim.deployment.sizing.attainment import Attainment

FACTOR, MOST_FACTORS = 1.5, 14
"""Of the search for the two ends, and how often: from a 290th to 290 times the scenario's rate."""


@dataclass(frozen=True, kw_only=True)
class HighestRate:
    """holds: at the highest rate that did, None when none did · fails: at the lowest that did not, None when all did ·
    runs: rates that were tried."""

    holds: Attainment | None
    fails: Attainment | None
    runs: int

    @property
    def rate_per_s(self) -> float:
        """The highest rate that holds, 0 when none does."""
        return 0.0 if self.holds is None else self.holds.rate_per_s

    @property
    def ends_by(self) -> str:
        """What more requests would fail by, empty when nothing was found that does."""
        return "" if self.fails is None else self.fails.worst


def highest_rate(at: Callable[[float], Attainment], share: float, start: float, tolerance: float = 0.02) -> HighestRate:
    """Search from `start` requests per second. at: serves at a rate · share: of requests that must keep the SLO ·
    tolerance: relative width in which the answer lies."""
    tried: list[Attainment] = []

    def holds(rate: float) -> bool:
        tried.append(at(rate))
        return tried[-1].inside >= share

    low, high = _ends(holds, start)
    while low and high and high / low > 1 + tolerance:
        middle = sqrt(low * high)
        if holds(middle):
            low = middle
        else:
            high = middle
    by_rate = {one.rate_per_s: one for one in tried}
    return HighestRate(holds=by_rate.get(low), fails=by_rate.get(high), runs=len(tried))


def _ends(holds: Callable[[float], bool], start: float) -> tuple[float, float]:
    """A rate that holds and one that does not, 0 where there is none in reach."""
    up = holds(start)
    rate = start
    for _ in range(MOST_FACTORS):
        following = rate * FACTOR if up else rate / FACTOR
        if holds(following) != up:
            return (rate, following) if up else (following, rate)
        rate = following
    return (rate, 0.0) if up else (0.0, rate)
