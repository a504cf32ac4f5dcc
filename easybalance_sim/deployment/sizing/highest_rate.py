"""The highest request rate inside the SLO, by bisection.

A rate holds when the scenario's share of requests (`slo.share`) keeps both limits and no queue grows. From where it
starts the search goes up or down by growing factors until one rate holds and one does not, then halves the ratio
between them until it is inside the tolerance. That more requests never do better is taken for granted; near the edge
chance decides, see `Attainment.inside_least`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from easybalance_sim.deployment.sizing.attainment import Attainment

FACTOR, MOST_FACTOR, FACTORS = 1.15, 2.0, 12
"""From one rate to the next: the first factor, squared every time up to the most, and how often: over three decades."""


@dataclass(frozen=True, kw_only=True)
class HighestRate:
    """holds: at the highest rate that did, None when none did · fails: at the lowest that did not, None when all did ·
    ends_by: what more requests fail by, empty when nothing was found that does · tried: what every rate that was tried
    attained, by rising rate."""

    holds: Attainment | None
    fails: Attainment | None
    ends_by: str
    tried: tuple[Attainment, ...]

    @property
    def runs(self) -> int:
        """Rates that were tried."""
        return len(self.tried)

    @property
    def rate_per_s(self) -> float:
        """The highest rate that holds, 0 when none does."""
        return 0.0 if self.holds is None else self.holds.rate_per_s


def highest_rate(at: Callable[[float], Attainment], share: float, start: float, tolerance: float = 0.02) -> HighestRate:
    """Search from `start` requests per second. at: serves at a rate · share: of requests that must keep the SLO ·
    tolerance: relative width in which the answer lies."""
    tried: dict[float, Attainment] = {}

    def holds(rate: float) -> bool:
        tried[rate] = at(rate)
        return tried[rate].holds(share)

    low, high = _ends(holds, start)
    while low and high and high / low > 1 + tolerance:
        middle = sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    fails = tried.get(high)
    return HighestRate(
        holds=tried.get(low),
        fails=fails,
        ends_by="" if fails is None else fails.fails_by(share),
        tried=tuple(tried[rate] for rate in sorted(tried)),
    )


def _ends(holds: Callable[[float], bool], start: float) -> tuple[float, float]:
    """A rate that holds and one that does not, 0 where there is none in reach."""
    up = holds(start)
    rate, factor = start, FACTOR
    for _ in range(FACTORS):
        following = rate * factor if up else rate / factor
        if holds(following) != up:
            return (rate, following) if up else (following, rate)
        rate, factor = following, min(MOST_FACTOR, factor * factor)
    return (rate, 0.0) if up else (0.0, rate)
