"""The exact probability that an expert is among K drawn without replacement."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray, frozen

_POINTS = 256
_ROWS = 8


def inclusion(weights: FloatArray, top_k: int) -> FloatArray:
    """float64[…, E] probability that each expert is chosen when K are drawn by weight without replacement.

    weights: float64[…, E] ≥ 0, at least K of them positive. Drawing without replacement is the race of exponential
    clocks with rates w: the K first to ring are chosen. So P(e) = ∫ w·exp(−w·t)·P(fewer than K others rang by t) dt,
    where the count of others is Poisson-binomial; the integral is taken over log t by the trapezoid rule.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    parts = [_race(rows[first : first + _ROWS], top_k) for first in range(0, len(rows), _ROWS)]
    return frozen(np.concatenate(parts).reshape(weights.shape), np.float64)


def _race(rate: FloatArray, top_k: int) -> FloatArray:
    """[B, E] from rates [B, E]; who rang is counted from both ends, so that each expert can be left out in turn."""
    rows, experts = rate.shape
    least = np.where(rate > 0, rate, np.inf).min(axis=1)
    low, high = np.log(1e-9 / rate.max(axis=1)), np.log(40.0 / least)
    grid = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _POINTS)
    time, width = np.exp(grid), (high - low) / (_POINTS - 1)
    silent = np.exp(-rate[:, :, None] * time[:, None, :])
    before = np.zeros((experts + 1, rows, top_k, _POINTS))
    before[0, :, 0] = 1.0
    for expert in range(experts):
        before[expert + 1] = _one_more(before[expert], silent[:, expert])
    chosen = np.empty((rows, experts))
    after = before[0].copy()
    for expert in reversed(range(experts)):
        at_most = np.cumsum(after, axis=1)[:, ::-1]
        free = (before[expert] * at_most).sum(axis=1)
        density = rate[:, expert, None] * time * silent[:, expert]
        chosen[:, expert] = (free * density).sum(axis=1) * width
        after = _one_more(after, silent[:, expert])
    return chosen


def _one_more(counts: FloatArray, silent: FloatArray) -> FloatArray:
    """Distribution of how many rang, [B, K, J], with one more clock that is silent with probability [B, J]."""
    longer: FloatArray = counts * silent[:, None]
    longer[:, 1:] += counts[:, :-1] * (1.0 - silent[:, None])
    return longer
