"""Which rank takes which share of a layer: a permutation of ranks per layer that evens out their totals over layers.

Objective: mean over windows of sum over ranks of heat^8, heat being a rank's load of all layers over the mean rank's.
With the other layers as they are it is a sum of one term per rank, so that the best relabelling of one layer is an
assignment problem, solved exactly; no exchange of two ranks of a layer can improve what comes out. Layers take turns
until none improves; then a few are shuffled and it starts again from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray, frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import PlanError
from easybalance_sim.plan.plan import Plan

MOST_WINDOWS = 256
"""Of longer pasts so many windows are taken, evenly spread."""
MOST_KICKS, FEWEST_KICKS = 60, 3
SHUFFLED_LAYERS = 3
WORK = 600_000_000
"""Costs that shuffles may compute in all: seconds on one core."""
ROUNDS = 8
"""After so many rounds over all layers most descents have stopped, for the count of shuffles only."""
LEAST_GAIN = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Freedom:
    """What may be relabelled. kinds: int64[R] ranks that may stand for each other have the same number · layers:
    bool[L], the others keep their labels."""

    kinds: IntArray
    layers: BoolArray

    def shuffled(self, labels: IntArray, layers: IntArray, source: np.random.Generator) -> IntArray:
        """int64[L, R] labels with the ranks of each kind dealt anew in some layers."""
        out = labels.copy()
        for layer in layers[self.layers[layers]].tolist():
            for kind in np.unique(self.kinds):
                mine = np.flatnonzero(self.kinds == kind)
                out[layer, mine] = out[layer, source.permutation(mine)]
        return out


def freedom(plan: Plan, topology: Topology, *, inside_nodes: bool = False, layers: BoolArray | None = None) -> Freedom:
    """Ranks of the same slots and speed may stand for each other, if `inside_nodes` only those of one node: then no
    token crosses another network link. layers: bool[L] that may be relabelled, None = all. Raises `PlanError` when the
    plan is for another number of ranks."""
    if plan.ranks != topology.ranks:
        raise PlanError(f"plan has {plan.ranks} ranks, the cluster {topology.ranks}", where="staggering")
    node = topology.node_of_rank if inside_nodes else np.zeros(plan.ranks)
    alike = np.stack([plan.slots_per_rank, topology.speed, node])
    kinds = np.unique(alike, axis=1, return_inverse=True)[1].reshape(-1)
    return Freedom(kinds=frozen(kinds, np.int64), layers=np.ones(plan.layers, np.bool_) if layers is None else layers)


def as_is(layers: int, ranks: int) -> IntArray:
    """int64[L, R] every rank under its own label."""
    return np.tile(np.arange(ranks), (layers, 1))


def relabelled(plan: Plan, labels: IntArray) -> Plan:
    """The plan in which rank r of layer l holds what rank labels[l, r] held.

    labels: int64[L, R], a permutation in each layer. Every layer's rank loads stay the same up to their order. Raises
    `PlanError` for labels that are no permutations or bring ranks of different slots together.
    """
    if labels.shape != (plan.layers, plan.ranks) or (np.sort(labels, axis=1) != np.arange(plan.ranks)).any():
        raise PlanError("labels are not a permutation of the ranks in every layer", where="staggering")
    if (plan.slots_per_rank[labels] != plan.slots_per_rank).any():
        raise PlanError("ranks of different slots cannot stand for each other", where="staggering")
    place = np.arange(plan.slots) - plan.slot_start[plan.rank_of_slot]
    source = plan.slot_start[labels[:, plan.rank_of_slot]] + place
    return replace(plan, expert_of_slot=frozen(np.take_along_axis(plan.expert_of_slot, source, axis=1), np.int32))


def carried(loads: FloatArray, labels: IntArray) -> FloatArray:
    """[…, L, R] loads under labels int64[L, R]."""
    return np.take_along_axis(loads, labels.reshape((1,) * (loads.ndim - 2) + labels.shape), axis=-1)


def hottest_together(loads: FloatArray, free: Freedom) -> IntArray:
    """int64[L, R] the worst labels on the mean of loads float64[S, L, R]: among ranks of a kind the busiest of every
    layer comes first, so that heat adds up. Windows can make other labels worse still."""
    out = as_is(*loads.shape[1:])
    mean = loads.mean(axis=0)
    for kind in np.unique(free.kinds):
        mine = np.flatnonzero(free.kinds == kind)
        out[:, mine] = mine[np.argsort(-mean[:, mine], axis=1, kind="stable")]
    return np.where(free.layers[:, None], out, as_is(*loads.shape[1:]))


def at_random(layers: int, free: Freedom, source: np.random.Generator) -> IntArray:
    """int64[L, R] labels by chance."""
    return free.shuffled(as_is(layers, len(free.kinds)), np.arange(layers), source)


def search(
    windows: FloatArray,
    free: Freedom,
    *,
    seed: int = 0,
    pairs: bool = False,
    price: FloatArray | None = None,
    advance: Callable[[int], None] = lambda units: None,
) -> IntArray:
    """int64[L, R] the best labels found for loads float64[W, L, R] of windows, deterministic per seed.

    They start from labels as they are and are never worse on these windows. pairs: the objective is of every two
    neighbouring layers together, not of all layers (two micro-batches one layer apart) · price: float64[L, R, R] what
    it costs, in the objective, that rank r of layer l takes the share of rank s · advance: called once per descent,
    `descents(…)` times.
    """
    work = _Work(_relative(windows), free, pairs, price)
    best = work.descend(as_is(*windows.shape[1:]))
    value, source = work.value(best), np.random.default_rng(seed)
    advance(1)
    for _ in range(descents(*windows.shape) - 1):
        size = min(SHUFFLED_LAYERS, windows.shape[1])
        start = free.shuffled(best, source.choice(windows.shape[1], size, replace=False), source)
        found = work.descend(start)
        reached = work.value(found)
        if reached < value * (1 - LEAST_GAIN):
            best, value = found, reached
        advance(1)
    return best


def descents(windows: int, layers: int, ranks: int) -> int:
    """How often a search of that size starts: fewer times where one descent is long."""
    one = min(windows, MOST_WINDOWS) * layers * ranks * ranks * ROUNDS
    return 1 + max(FEWEST_KICKS, min(MOST_KICKS, WORK // max(one, 1)))


def objective(windows: FloatArray, labels: IntArray) -> float:
    """Mean over windows of sum over ranks of heat^8; windows: float64[W, L, R] loads."""
    return _Work(_relative(windows), None, False, None).value(labels)


def _relative(windows: FloatArray) -> FloatArray:
    """Loads of at most `MOST_WINDOWS` windows, over the mean rank's of all layers; windows without load are 0."""
    if len(windows) > MOST_WINDOWS:
        windows = windows[np.linspace(0, len(windows) - 1, MOST_WINDOWS).round().astype(np.int64)]
    mean = windows.sum(axis=(1, 2), keepdims=True) / windows.shape[2]
    return windows / np.where(mean > 0, mean, 1.0)


class _Work:
    """Descents over one set of windows float64[W, L, R] (relative)."""

    def __init__(self, windows: FloatArray, free: Freedom | None, pairs: bool, price: FloatArray | None) -> None:
        layers, ranks = windows.shape[1:]
        self._windows, self._pairs, self._price = windows, pairs, price
        kinds = np.zeros(ranks, np.int64) if free is None else free.kinds
        self._kinds = [np.flatnonzero(kinds == kind) for kind in np.unique(kinds)]
        self._layers = np.arange(layers) if free is None else np.flatnonzero(free.layers)

    def value(self, labels: IntArray) -> float:
        """The objective."""
        load = carried(self._windows, labels)
        parts = load[:, :-1] + load[:, 1:] if self._pairs else load.sum(axis=1, keepdims=True)
        value = float((parts**8).sum(axis=(1, 2)).mean())
        if self._price is not None:
            value += float(np.take_along_axis(self._price, labels[:, :, None], axis=2).sum())
        return value

    def descend(self, labels: IntArray) -> IntArray:
        """Every layer relabelled as is best for the others, in turn, until none improves."""
        labels, load = labels.copy(), carried(self._windows, labels)
        total = load.sum(axis=1)
        still = 0
        while still < len(self._layers):
            for layer in self._layers.tolist():
                improved = self._relabel(layer, labels, load, total)
                still = 0 if improved else still + 1
        return labels

    def _relabel(self, layer: int, labels: IntArray, load: FloatArray, total: FloatArray) -> bool:
        cost = self._cost(layer, load, total)
        now, best = labels[layer], labels[layer].copy()
        for mine in self._kinds:
            place, share = linear_sum_assignment(cost[np.ix_(mine, mine)])
            best[mine[place]] = mine[share]
        rank = np.arange(len(now))
        if not cost[rank, best].sum() < cost[rank, now].sum() * (1 - LEAST_GAIN):
            return False
        fresh = self._windows[:, layer, best]
        total += fresh - load[:, layer]
        labels[layer], load[:, layer] = best, fresh
        return True

    def _cost(self, layer: int, load: FloatArray, total: FloatArray) -> FloatArray:
        """float64[R, R] what rank r adds to the objective when it takes the share of rank s."""
        share = self._windows[:, layer, None, :]
        cost = np.zeros((load.shape[2], load.shape[2]))
        for beside in self._beside(layer, load, total):
            heat = beside[:, :, None] + share
            for _ in range(3):
                heat *= heat
            cost += heat.mean(axis=0)
        return cost if self._price is None else cost + self._price[layer]

    def _beside(self, layer: int, load: FloatArray, total: FloatArray) -> list[FloatArray]:
        """What ranks carry beside this layer: all other layers, or the one before and the one after."""
        if not self._pairs:
            return [total - load[:, layer]]
        return [load[:, other] for other in (layer - 1, layer + 1) if 0 <= other < load.shape[1]]
