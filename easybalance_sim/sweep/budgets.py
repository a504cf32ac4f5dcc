"""Redundant slots for each layer on its own, under the memory of a uniform plan."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray

POWER = 8
"""Of the rank imbalance, as in the placement search: the worst windows of the worst layers decide."""


def layer_loss(values: FloatArray, power: int = 1) -> FloatArray:
    """float64[L] what a layer contributes: the mean of values^power over windows or steps, 0 without traffic.

    values: float64[W, L], NaN where there is no traffic. The sum over layers is what a choice of slots lowers: with
    power 1 of seconds it is exactly the mean time of a step.
    """
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).astype(np.float64) ** power
    loss: FloatArray = total.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return loss


def cheapest_levels(loss: FloatArray, price: IntArray, budget: int) -> IntArray:
    """int64[L] the level of each layer that minimises the summed loss with a summed price within `budget`.

    loss: float64[N, L] of level n in layer l · price: int64[N] whole slots per rank of a level, that of level 0 is 0.
    Exact (dynamic programming over layers, O(L · budget · N)), so gains need not be concave; of equal sums the one that
    costs least.
    """
    levels, layers = loss.shape
    best = np.zeros(budget + 1)
    chosen = np.zeros((layers, budget + 1), np.int64)
    for layer in range(layers):
        options = np.full((levels, budget + 1), np.inf)
        for level, paid in enumerate(price.tolist()):
            if paid <= budget:
                options[level, paid:] = best[: budget + 1 - paid] + loss[level, layer]
        chosen[layer] = options.argmin(axis=0)
        best = options.min(axis=0)
    out = np.zeros(layers, np.int64)
    left = int(np.flatnonzero(best <= best.min() * (1 + 1e-12))[0])
    for layer in range(layers - 1, -1, -1):
        out[layer] = chosen[layer, left]
        left -= int(price[out[layer]])
    return out


def columns(by_level: list[AnyArray], level: IntArray) -> AnyArray:
    """[W, L] of arrays [W, L] per level: each layer from the array of its level."""
    picked: AnyArray = np.stack([by_level[n][:, layer] for layer, n in enumerate(level.tolist())], axis=1)
    return picked
