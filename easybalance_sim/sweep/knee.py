"""What a point gains against zero redundancy, how sure that is, and the point beyond which memory buys little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray

SIGMAS = 2.0
MOST_BATCHES, FEWEST_PER_BATCH = 16, 4
RULE = (
    "points that gain more than the noise and whose step is not slower than that of zero redundancy; of those on the "
    "Pareto front of gain and memory, the one farthest above the straight line from zero redundancy to the largest "
    "gain, both axes scaled to 1"
)


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A P99 against that of zero redundancy, less is better. saved: the difference · noise: its standard error, NaN
    with too few windows · least: what a difference must exceed to count besides `SIGMAS` times its noise."""

    saved: float
    noise: float
    least: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it is more than chance and than the model's own tie."""
        return self.saved > 0 and self.saved >= self.least and self.saved > SIGMAS * self.noise


def gain(before: FloatArray, after: FloatArray, windows: int, tie_frac: float = 0.0) -> Gain:
    """P99 of `before` minus P99 of `after`, both over the same windows or steps [W, ...] in time order.

    Noise by batch means: the difference within consecutive batches of at least 4 windows, 16 batches at most, which
    takes neighbours that resemble one another into account. windows: how many W stands for (steps drawn from one window
    are one piece of evidence) · tie_frac: share of the P99 before that is no gain.
    """
    old, new = _p99(before), _p99(after)
    batches = min(MOST_BATCHES, windows // FEWEST_PER_BATCH)
    noise = float("nan")
    if batches > 1:
        parts = zip(np.array_split(before, batches), np.array_split(after, batches), strict=True)
        apart = [_p99(one) - _p99(other) for one, other in parts if np.isfinite(one).any()]
        noise = float(np.std(apart, ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else noise
    return Gain(saved=old - new, noise=noise, least=tie_frac * old)


def knee(gains: Sequence[Gain], memory: Sequence[float], slower: Sequence[bool]) -> int | None:
    """Index of the knee (see `RULE`), None when no point gains anything; the first point is zero redundancy.

    memory: what each point costs, rising · slower: points that lose more time than a tie. Where no point lies above the
    line, the largest gain is the knee.
    """
    front = [0]
    for index in range(1, len(gains)):
        better = gains[index].counts and not slower[index]
        if better and gains[index].saved > (gains[front[-1]].saved if front[-1] else 0.0):
            front.append(index)
    if len(front) == 1:
        return None
    last = front[-1]
    span = max(memory[last] - memory[0], 1e-300)
    above = [gains[one].saved / gains[last].saved - (memory[one] - memory[0]) / span for one in front[1:]]
    # Rounded, so that equal distances go to the cheaper point whatever the last digit says.
    heights = np.round(above, 9)
    return last if heights.max() <= 0 else front[1 + int(heights.argmax())]


def _p99(values: FloatArray) -> float:
    return float(np.nanquantile(values, 0.99))
