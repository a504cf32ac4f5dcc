"""What goes with the experts that the same tokens use `ahead` layers before, learned on requests that are over.

    P(j | a token uses experts A) = mean over i in A of n(i, j) / n(i)    n: tokens that use i, and j `ahead` layers on
    P(a step needs j) = 1 - product over its tokens of (1 - P)

The first layers of a step have none before them and are not predicted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray
from easybalance_sim.simulate.offloading.prefetch import View

TOKENS_AT_ONCE = 1 << 15
ALMOST_ONE = 1 - 1e-6


def chances(view: View) -> Iterator[tuple[int, FloatArray]]:
    """Of every layer that has another `ahead` layers before."""
    learned = view.sides.past.experts[view.sides.ended]
    judged, experts = view.sides.judged, view.judged.experts
    for layer in range(view.ahead, view.judged.layers):
        table = conditional(learned[:, layer - view.ahead], learned[:, layer], experts)
        yield layer, step_chances(judged.experts[:, layer - view.ahead], judged.start, table)


def conditional(before: AnyArray, after: AnyArray, experts: int) -> FloatArray:
    """float64[E, E] share of the tokens with expert i in `before` that have j in `after`, both [T, K]; of an i that no
    token has the share among all tokens."""
    pairs = (before[:, :, None].astype(np.int64) * experts + after[:, None, :]).ravel()
    both = np.bincount(pairs, minlength=experts * experts).reshape(experts, experts).astype(np.float64)
    alone = np.bincount(before.ravel(), minlength=experts)[:, None]
    share = np.bincount(after.ravel(), minlength=experts) / max(len(after), 1)
    return np.where(alone > 0, both / np.maximum(alone, 1), share)


def step_chances(before: AnyArray, start: AnyArray, table: FloatArray) -> FloatArray:
    """float64[S, E] that a step needs each expert; before: [T, K] of its tokens, which begin at start int64[S+1]."""
    log_not = np.empty((len(start) - 1, len(table)))
    first = 0
    while first < len(log_not):
        end = max(first + 1, int(np.searchsorted(start, start[first] + TOKENS_AT_ONCE, side="right")) - 1)
        mine = before[start[first] : start[end]]
        chance = np.minimum(table[mine].mean(axis=1), ALMOST_ONE)
        log_not[first:end] = np.add.reduceat(np.log1p(-chance), start[first:end] - start[first], axis=0)
        first = end
    return 1 - np.exp(log_not)
