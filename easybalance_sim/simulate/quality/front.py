"""Balance against loss against memory: which mechanisms no other one beats, and where more loss buys little.

The loss is a band, so one point beats another only where both ends of its band do. Differences of balance below a
tolerance are none: an offset under a good placement must not get onto the front by the third decimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

TOLERANCE = 0.005
"""Of the rank imbalance: replays of one mechanism differ by as much from the model that they stand for."""
STEP_MEAN, STEP_P99 = "step_mean", "step_p99"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A mechanism on a placement. step_mean, step_p99: max/mean rank load of a step of a layer · loss_low, loss_high:
    nats, both 0 where the router's choice is left alone · slots: of a layer, on all ranks · stable: False where the
    loop is known not to settle; such a one is never on the front."""

    name: str
    step_mean: float
    step_p99: float
    loss_low: float
    loss_high: float
    slots: int
    stable: bool = True

    @property
    def lossless(self) -> bool:
        """Whether it cannot cost quality."""
        return self.loss_low == self.loss_high == 0.0

    @property
    def loss(self) -> float:
        """The middle of the band, at least 0: a gain in quality is not to be had."""
        return max(0.0, (self.loss_low + self.loss_high) / 2)


@dataclass(frozen=True, kw_only=True)
class Front:
    """points: those that nothing beats, by falling imbalance, thus by rising price · knee: the one beyond which loss
    buys little balance, at the memory of the placement with the fewest slots; None without a lossy point that gains."""

    axis: str
    points: tuple[Point, ...]
    knee: Point | None

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "axis": self.axis,
            "points": [{**asdict(point), "lossless": point.lossless} for point in self.points],
            "knee": None if self.knee is None else self.knee.name,
        }


def front(points: Sequence[Point], axis: str = STEP_MEAN, tolerance: float = TOLERANCE) -> Front:
    """The front by `STEP_MEAN` or `STEP_P99`, loss band and slots."""
    steady = [point for point in points if point.stable]
    best = [one for one in steady if not any(_beats(other, one, axis, tolerance) for other in steady)]
    best.sort(key=lambda point: (-float(getattr(point, axis)), point.loss, point.slots))
    return Front(axis=axis, points=tuple(best), knee=_knee(best, axis, tolerance))


def _beats(one: Point, other: Point, axis: str, tolerance: float) -> bool:
    """Whether `one` is as good everywhere and better somewhere. Of equals the cheaper one wins, then the first name."""
    if one is other:
        return False
    gain = float(getattr(other, axis)) - float(getattr(one, axis))
    # Below 0 a band only says that nothing was measured: one that reaches further down is no cheaper.
    low, high = max(0.0, one.loss_low) - max(0.0, other.loss_low), one.loss_high - other.loss_high
    if max(low, high, one.slots - other.slots) > 0 or gain < -tolerance:
        return False
    cheaper = min(low, high, one.slots - other.slots) < 0
    return gain > tolerance or cheaper or (gain, other.name) > (0.0, one.name)


def _knee(best: Sequence[Point], axis: str, tolerance: float) -> Point | None:
    """The point farthest from the line between the ends of the front, both axes scaled to 1, as a bend towards both."""
    fewest = min((point.slots for point in best), default=0)
    lean = sorted((p for p in best if p.slots == fewest), key=lambda p: (p.loss, float(getattr(p, axis))))
    if len(lean) < 2:
        return None
    start, end = lean[0], lean[-1]
    gain, paid = float(getattr(start, axis)) - float(getattr(end, axis)), end.loss - start.loss
    if gain <= tolerance or paid <= 0:
        return None
    above = [
        (float(getattr(start, axis)) - float(getattr(p, axis))) / gain - (p.loss - start.loss) / paid for p in lean
    ]
    at = max(range(1, len(lean)), key=lambda place: above[place])
    return lean[at]
