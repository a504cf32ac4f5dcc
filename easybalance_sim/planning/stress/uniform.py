"""Uniform routing: every token draws its experts, all sets of K experts that the router could choose as likely."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.trace.schema import TraceMeta, as_ids


def uniform_experts(tokens: int, meta: TraceMeta, rng: np.random.Generator) -> AnyArray:
    """uint8|uint16[T, L, K] distinct ids: as many groups as the router keeps are drawn, then K of their experts."""
    rows = tokens * len(meta.layers)
    members = meta.experts // meta.groups
    place = subsets(rows, meta.topk_group * members, meta.top_k, rng)
    if meta.topk_group < meta.groups:
        groups = subsets(rows, meta.groups, meta.topk_group, rng)
        place = np.take_along_axis(groups, place // members, axis=1) * members + place % members
    return as_ids(place.reshape(tokens, len(meta.layers), meta.top_k), meta.experts)


def subsets(rows: int, of: int, size: int, rng: np.random.Generator) -> IntArray:
    """int64[rows, size] distinct numbers of 0..of-1, every set as likely (Floyd's sampling, Bentley 1987)."""
    out = np.empty((rows, size), np.int64)
    for column in range(size):
        last = of - size + column
        drawn = rng.integers(0, last + 1, rows)
        taken = (out[:, :column] == drawn[:, None]).any(axis=1)
        out[:, column] = np.where(taken, last, drawn)
    return out
