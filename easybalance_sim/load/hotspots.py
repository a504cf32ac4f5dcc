"""Hot spots: loads that stay above the mean, not single spikes; and the heat of a rank over all layers.

Two rules. That of the EasyBalance article: three windows in a row above the mean, and the last at least 15 % above the
one before; such growth is mostly noise that goes again. And the one that finds more of what stays hot (held against the
next second by `simulate.sensing`): the last three windows together over a threshold, until they fall below a lower one.
What is judged is an expert of a layer, or a rank (node) by the sum over its resident experts of all layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, Int32Array, IntArray, frozen

GROWTH = 0.15
HISTORY = 3
ON, OFF = 1.2, 1.1
"""Of the mean: where the last windows together become hot, and where they are no longer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HotSpots:
    """hot: bool[W, …] what is hot in each window · suppressed: spikes that a single window would have called hot
    (above the mean and ≥ 15 % up, or over the threshold) but the windows before it did not."""

    hot: BoolArray
    suppressed: int

    @property
    def windows(self) -> IntArray:
        """int64[…] in how many windows each place was hot."""
        return frozen(self.hot.sum(axis=0), np.int64)


def hot_experts(tokens: IntArray) -> HotSpots:
    """Hot experts per layer; tokens: int64[W, L, E] assignments, compared with their layer's mean in each window."""
    return _sustained(tokens)


def hot_ranks(heat: FloatArray) -> HotSpots:
    """Hot ranks, or nodes; heat: float64[W, R], compared with the window's mean."""
    return _sustained(heat)


def staying_hot(load: AnyArray) -> HotSpots:
    """What the last three windows together put over `ON` times the mean, until they are below `OFF` times.

    load: [W, …, U] experts of a layer, ranks or nodes, compared with the mean over the last axis.
    """
    load = np.asarray(load)
    hot = np.zeros(load.shape, np.bool_)
    if len(load) < HISTORY:
        return HotSpots(hot=frozen(hot), suppressed=0)
    total = np.cumsum(load, axis=0)
    seen = total[HISTORY - 1 :].copy()
    seen[1:] -= total[:-HISTORY]
    mean = seen.mean(axis=-1, keepdims=True)
    hot[HISTORY - 1 :] = held(seen > ON * mean, (seen < OFF * mean) | (mean == 0))
    spikes = load > ON * load.mean(axis=-1, keepdims=True)
    return HotSpots(hot=frozen(hot), suppressed=int((spikes & ~hot)[HISTORY - 1 :].sum()))


def held(on: BoolArray, off: BoolArray) -> BoolArray:
    """bool[W, …] what was switched on and not off since, along axis 0."""
    place = np.arange(len(on)).reshape(-1, *(1,) * (on.ndim - 1))
    # Between the two thresholds the last window that was outside them decides.
    decided = np.maximum.accumulate(np.where(on | off, place, 0), axis=0)
    state: BoolArray = np.take_along_axis(on, decided, axis=0)
    return state


def even_share(expert_of_slot: Int32Array, rank_of_slot: Int32Array, experts: int, ranks: int) -> FloatArray:
    """float64[L, E, R] share of each expert's tokens that each rank serves when replicas split them evenly.

    expert_of_slot: int32[L, P] · rank_of_slot: int32[P].
    """
    layers, slots = expert_of_slot.shape
    place = np.broadcast_to(np.arange(layers)[:, None], (layers, slots))
    flat = (place * experts + expert_of_slot) * ranks + rank_of_slot
    replicas = np.bincount(flat.ravel(), minlength=layers * experts * ranks).reshape(layers, experts, ranks)
    return frozen(replicas / np.maximum(replicas.sum(axis=2, keepdims=True), 1), np.float64)


def rank_heat(tokens: IntArray, share: FloatArray) -> FloatArray:
    """float64[W, R] tokens that arrive at each rank, summed over its resident experts of ALL layers.

    tokens: int64[W, L, E] · share: float64[L, E, R] weight of a rank in each expert's tokens (see `even_share`).
    """
    windows, layers, experts = tokens.shape
    heat = tokens.reshape(windows, layers * experts).astype(np.float64) @ share.reshape(layers * experts, -1)
    return frozen(heat, np.float64)


def node_heat(heat: FloatArray, node_of_rank: IntArray) -> FloatArray:
    """float64[W, N] heat of each node per rank of it, so that nodes of unequal size compare; heat: float64[W, R]."""
    return frozen(heat @ per_node(node_of_rank), np.float64)


def per_node(node_of_rank: IntArray) -> FloatArray:
    """float64[R, N] matrix that averages ranks into their nodes; node_of_rank: int64[R]."""
    member = np.zeros((len(node_of_rank), int(node_of_rank.max()) + 1))
    member[np.arange(len(node_of_rank)), node_of_rank] = 1.0
    return frozen(member / member.sum(axis=0), np.float64)


def above_mean(load: AnyArray) -> BoolArray:
    """bool[…] what carries more than the mean over the last axis."""
    above: BoolArray = load > load.mean(axis=-1, keepdims=True)
    return above


def grown(load: AnyArray, before: AnyArray) -> BoolArray:
    """bool[…] what is at least `GROWTH` above its own value of the window before."""
    more: BoolArray = load >= (1 + GROWTH) * before
    return more


def _sustained(load: AnyArray) -> HotSpots:
    """The rule along axis 0; the mean is taken over the last axis."""
    above = above_mean(load)
    rising = np.zeros_like(above)
    rising[1:] = above[1:] & grown(load[1:], load[:-1])
    hot = np.zeros_like(above)
    lasting = np.ones_like(above[HISTORY - 1 :])
    for back in range(HISTORY):
        lasting &= above[HISTORY - 1 - back : len(above) - back]
    hot[HISTORY - 1 :] = rising[HISTORY - 1 :] & lasting
    judged = rising[HISTORY - 1 :]
    return HotSpots(hot=frozen(hot), suppressed=int(judged.sum() - hot.sum()))
