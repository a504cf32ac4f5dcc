"""What no placement can beat: lower bounds of the rank imbalance, by layer, by window, by node."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from math import comb

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray

MAX_NODE_SHARES = 500
"""Most sets of expert groups that `hierarchical_bound` looks at as the share of one node; 8 groups have at most 70."""

_CELLS = 1 << 21
"""Most quotients held at once: 16 MB."""

_SLACK = 1 - 1e-6
"""Factor before a quotient of floats is rounded up, so that rounding errors never lift a bound."""


def lower_bound(weight: FloatArray, ranks: int, slots: int, speed: FloatArray | None = None) -> FloatArray:
    """float64[L] rank imbalance (max / mean load over ranks) that no placement of these loads can go below.

    weight: float64[L, E] loads ≥ 0 · slots: P ≥ E over all ranks · speed: float64[R], a load then counts as load /
    speed of its rank and the mean as total load / total speed. The hottest rank carries at least the mean and at least
    T = min over replica counts of max_e weight_e / count_e, however the load of an expert is split over its replicas:
    with count_e replicas, one of them gets weight_e / count_e or more (with speeds: the ranks that hold them take at
    least weight_e / sum of the count_e highest speeds). Slots per rank may differ. A layer without load has bound 1.
    """
    loads = np.asarray(weight, np.float64)
    capacity = np.cumsum(np.ones(ranks) if speed is None else np.sort(speed)[::-1])
    mean = loads.sum(axis=1) / capacity[-1]
    bound = np.ones(len(loads))
    # One replica is below the mean: then so is T, and the mean binds.
    skewed = loads.max(axis=1, initial=0.0) > mean * capacity[0]
    rows = np.flatnonzero(skewed)
    per_chunk = max(1, _CELLS // (loads.shape[1] * (slots - loads.shape[1] + 1)))
    for start in range(0, len(rows), per_chunk):
        some = rows[start : start + per_chunk]
        bound[some] = np.maximum(1.0, _thinnest(loads[some], slots, capacity)[:, -1] / mean[some])
    return bound


def even_split_bound(weight: FloatArray, slots_per_rank: IntArray) -> FloatArray:
    """float64[L] as `lower_bound`, for placements whose replicas share an expert's load evenly and that have no expert
    twice on a rank; never below `lower_bound`. Tighter with few slots per rank or no redundancy.

    weight: float64[L, E] loads ≥ 0 · slots_per_rank: int64[R], sum P ≥ E; K below is the smallest of them.

    Largest replica. Let u be the largest load of a replica in some placement; count_e ≥ n_e(u) = max(1, ⌈weight_e /
    u⌉), and d = P - Σ n_e(u) slots hold replicas beyond that. The rank with the largest replica holds K - 1 other
    experts J at least, so it carries u + Σ_J weight_e / (n_e(u) + a_e) for some extra replicas with Σ_J a_e ≤ d. Now T
    = T(P - d), the smallest largest replica that P - d slots allow, is ≤ u, and n_e(T) = n_e(u): each is ≥, and their
    sums are both P - d. Hence the load is ≥ T + min over J and a of that sum, and the bound is the least of this over
    d = 0 … P - E.

    One replica each (P = E). Of the j·R + 1 heaviest experts, j + 1 stand together somewhere, with K - 1 - j others:
    the lightest j + 1 of those and the lightest K - 1 - j of all, for every j.
    """
    loads = np.asarray(weight, np.float64)
    ranks, slots = len(slots_per_rank), int(np.sum(slots_per_rank))
    fewest = min(int(np.min(slots_per_rank)), loads.shape[1])
    bound = lower_bound(loads, ranks, slots)
    mean = loads.sum(axis=1) / ranks
    if slots == loads.shape[1]:
        return _ratio(np.maximum(bound * mean, _alone(loads, ranks, fewest)), mean)
    falling = _thinnest(loads, slots, np.arange(1.0, ranks + 1))
    lightest = np.sort(loads, axis=1)[:, : fewest - 1].sum(axis=1)
    # The bound is at most T(P) + the K - 1 lightest experts: where that is under the mean, nothing is to be gained.
    for layer in np.flatnonzero(falling[:, -1] + lightest > bound * mean):
        shared = _with_company(loads[layer], falling[layer], slots, ranks, fewest - 1)
        bound[layer] = max(bound[layer], shared / mean[layer])
    return bound


def hierarchical_bound(weight: FloatArray, groups: int, node_of_rank: IntArray, slots_per_rank: IntArray) -> FloatArray:
    """float64[L] as `lower_bound`, for placements that keep each of the G expert groups inside one node.

    weight: float64[L, E], groups of E / G neighbours · node_of_rank, slots_per_rank: int64[R]. Every way to give each
    node its G / N groups is looked at: the least over those of the greatest bound of a node. Nodes that differ, groups
    that do not divide over them, or more than `MAX_NODE_SHARES` shares: `lower_bound`, which holds for these
    placements too.
    """
    loads = np.asarray(weight, np.float64)
    ranks, slots = len(node_of_rank), int(np.sum(slots_per_rank))
    bound, mean = lower_bound(loads, ranks, slots), loads.sum(axis=1) / ranks
    nodes = int(np.max(node_of_rank)) + 1
    if not _can_enumerate(loads.shape[1], groups, node_of_rank, slots_per_rank):
        return bound
    by_group, share = loads.reshape(len(loads), groups, -1), groups // nodes

    @cache
    def node_load(held: tuple[int, ...]) -> FloatArray:
        inside = by_group[:, held].reshape(len(loads), -1)
        busiest: FloatArray = lower_bound(inside, ranks // nodes, slots // nodes) * inside.sum(axis=1)
        return busiest / (ranks // nodes)

    @cache
    def best(left: tuple[int, ...]) -> FloatArray:
        if not left:
            return np.zeros(len(loads))
        options = []
        # The first group that is left goes to the next node: nodes are alike, their order does not matter.
        for others in combinations(left[1:], share - 1):
            held = (left[0], *others)
            options.append(np.maximum(node_load(held), best(tuple(g for g in left if g not in held))))
        least: FloatArray = np.minimum.reduce(options)
        return least

    return np.maximum(bound, _ratio(best(tuple(range(groups))), mean))


def window_bound(
    tokens: AnyArray, slots_per_rank: IntArray, speed: FloatArray | None = None, *, whole: bool = True
) -> FloatArray:
    """float64[W, L] rank imbalance of a window that no placement with these slots can go below, not even one made for
    that window alone, whatever rule picks the replica; NaN without traffic. Its mean and quantiles bound those of
    every plan, fixed or re-planned.

    tokens: [W, L, E] assignments · speed: float64[R] as in `lower_bound` · whole: loads of ranks are whole assignments
    (a replay of tokens; not expectations), so the busiest of equally fast ranks has the mean rounded up, or more.
    Without redundancy no rule has a choice, and the bound of `even_split_bound` for P = E applies; the rank that it
    speaks of may be the fastest one.
    """
    shape, ranks, slots = tokens.shape, len(slots_per_rank), int(np.sum(slots_per_rank))
    loads = tokens.reshape(-1, shape[2]).astype(np.float64)
    mean = loads.sum(axis=1) / ranks
    pace = None if speed is None or not np.ptp(speed) else speed / speed.mean()
    fastest = 1.0 if pace is None else float(pace.max())
    least = lower_bound(loads, ranks, slots, pace) * mean
    if slots == shape[2]:
        least = np.maximum(least, _alone(loads, ranks, int(np.min(slots_per_rank))) / fastest)
    if whole and pace is None:
        least = np.maximum(least, np.ceil(least * _SLACK))
    return np.where(mean > 0, _ratio(least, mean), np.nan).reshape(shape[:2])


def _thinnest(loads: FloatArray, slots: int, capacity: FloatArray) -> FloatArray:
    """float64[L, P - E + 1] smallest possible largest load of a replica with E, E + 1, … P slots.

    capacity: float64[R], rising: what 1, 2, … R ranks take of one expert; all 1, 2, … without speeds. A limit T costs
    an expert one slot more than it has quotients weight / capacity above T, so T(n) is the (n - E + 1)-th largest
    quotient of the layer, and no expert can be thinner than over all ranks.
    """
    spare = slots - loads.shape[1]
    useful = capacity[: spare + 1]
    quotients = (loads[:, :, None] / useful).reshape(len(loads), -1)
    if quotients.shape[1] <= spare:
        quotients = np.pad(quotients, ((0, 0), (0, spare + 1 - quotients.shape[1])))
    cut = quotients.shape[1] - spare - 1
    falling = np.sort(np.partition(quotients, cut, axis=1)[:, cut:], axis=1)[:, ::-1]
    thinnest: FloatArray = np.maximum(falling, loads.max(axis=1, keepdims=True) / useful[-1])
    return thinnest


def _alone(loads: FloatArray, ranks: int, fewest: int) -> FloatArray:
    """float64[L] load of the busiest rank at least, when every expert stands on one rank; see `even_split_bound`."""
    rising = np.sort(loads, axis=1)
    falling, least = rising[:, ::-1], np.zeros(len(loads))
    for others in range((loads.shape[1] - 1) // ranks + 1):
        together = falling[:, others * (ranks - 1) : others * ranks + 1].sum(axis=1)
        least = np.maximum(least, together + rising[:, : max(0, fewest - 1 - others)].sum(axis=1))
    return least


def _with_company(row: FloatArray, falling: FloatArray, slots: int, ranks: int, company: int) -> float:
    """Load of a rank with the largest replica and `company` other experts, at least; see `even_split_bound`.

    row: float64[E] · falling: float64[P - E + 1] from `_thinnest`.
    """
    least = np.inf
    for largest in falling[::-1]:
        if largest >= least:
            break
        count = np.maximum(1, np.ceil(row / largest * _SLACK)).astype(np.int64)
        least = min(least, largest + _lightest(row, count, company, slots - int(count.sum()), ranks))
    return float(least)


def _lightest(row: FloatArray, count: IntArray, picks: int, spare: int, ranks: int) -> float:
    """Smallest sum of loads of replicas of `picks` experts, when `spare` more replicas may go to them, up to `ranks`
    for each."""
    extra = np.minimum(np.arange(spare + 1), (ranks - count)[:, None])
    loads = row[:, None] / (count[:, None] + extra)
    # An expert that gets a extra replicas is among the `picks` lightest with a extra ones, or could be exchanged.
    order = np.argsort(loads, axis=0, kind="stable")[:picks]
    sums = np.full((picks + 1, spare + 1), np.inf)
    sums[0] = 0.0
    for expert in np.unique(order):
        without = sums.copy()
        for used in range(spare + 1):
            np.minimum(sums[1:, used:], without[:-1, : spare + 1 - used] + loads[expert, used], out=sums[1:, used:])
    return float(sums[picks, spare])


def _can_enumerate(experts: int, groups: int, node_of_rank: IntArray, slots_per_rank: IntArray) -> bool:
    ranks_of_node = np.bincount(node_of_rank)
    slots_of_node = np.bincount(node_of_rank, weights=slots_per_rank)
    nodes = len(ranks_of_node)
    if len(set(ranks_of_node)) > 1 or len(set(slots_of_node)) > 1 or groups % nodes or experts % groups:
        return False
    return comb(groups, groups // nodes) <= MAX_NODE_SHARES


def _ratio(load: FloatArray, mean: FloatArray) -> FloatArray:
    """load / mean, 1 where there is no load."""
    ratio: FloatArray = np.divide(load, mean, out=np.ones(len(load)), where=mean > 0)
    return ratio
