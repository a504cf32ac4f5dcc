"""Counts of a step shared among replicas, compiled; specification in `reference_replicas`.

The optimum is a flow: an assignment moves from the busiest rank along a chain of replicas to one that is lower. When no
chain is left, the ranks reached hold only what can go nowhere else, which proves it; the same ranks, scaled by their
number, start the search for the optimum in fractions (Dinkelbach's iteration, in whole numbers throughout).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from easybalance_sim.kernels.bare import bare_njit

EVEN, LEAST_LOADED, WATER, OPTIMUM = range(4)


@njit(cache=True, nogil=True)
def replicated(starts, slots, rank_of_slot):  # type: ignore[no-untyped-def]
    """int64: experts [X] with several replicas, the first place of each [X+1], and of each place [C] slot, rank and
    expert's number."""
    experts, places = 0, 0
    for e in range(len(starts) - 1):
        if starts[e + 1] - starts[e] > 1:
            experts += 1
            places += starts[e + 1] - starts[e]
    who, first = np.empty(experts, np.int64), np.zeros(experts + 1, np.int64)
    slot, rank, owner = np.empty(places, np.int64), np.empty(places, np.int64), np.empty(places, np.int64)
    x, c = 0, 0
    for e in range(len(starts) - 1):
        if starts[e + 1] - starts[e] > 1:
            who[x] = e
            for i in range(starts[e], starts[e + 1]):
                slot[c], rank[c], owner[c] = slots[i], rank_of_slot[slots[i]], x
                c += 1
            x += 1
            first[x] = c
    return who, first, slot, rank, owner


@njit(cache=True, nogil=True)
def places_of_ranks(rank, ranks):  # type: ignore[no-untyped-def]
    """Where each rank's places begin, int64[R+1], and the places rank by rank, int64[C]."""
    start, places = np.zeros(ranks + 1, np.int64), np.empty(len(rank), np.int64)
    for c in range(len(rank)):
        start[rank[c] + 1] += 1
    for r in range(ranks):
        start[r + 1] += start[r]
    at = start[:-1].copy()
    for c in range(len(rank)):
        places[at[rank[c]]] = c
        at[rank[c]] += 1
    return start, places


@bare_njit()
def take_singles(counts, starts, slots, rank_of_slot, load, took):  # type: ignore[no-untyped-def]
    """Experts with one replica; what the ranks have of them to `load`."""
    load[:] = 0
    for e in range(len(counts)):
        if starts[e + 1] - starts[e] == 1:
            slot = slots[starts[e]]
            load[rank_of_slot[slot]] += counts[e]
            took[slot] = counts[e]


@bare_njit()
def sort_by_load(order, given):  # type: ignore[no-untyped-def]
    """Insertion: from one step to the next the order changes little."""
    for i in range(1, len(order)):
        one, j = order[i], i
        while j > 0 and (
            given[order[j - 1]] < given[one] or (given[order[j - 1]] == given[one] and order[j - 1] > one)
        ):
            order[j] = order[j - 1]
            j -= 1
        order[j] = one


@bare_njit()
def _sorted_loads(places, rank, load, rising):  # type: ignore[no-untyped-def]
    for i in range(len(places)):
        one, j = load[rank[places[i]]], i
        while j > 0 and rising[j - 1] > one:
            rising[j] = rising[j - 1]
            j -= 1
        rising[j] = one


@bare_njit()
def pour(count, places, rank, load, rising, part):  # type: ignore[no-untyped-def]
    """As one by one to the least loaded rank: up to a level, and one more each of the first places at it."""
    _sorted_loads(places, rank, load, rising)
    total, n = rising[0], 1
    while n < len(places) and count + total >= n * rising[n]:
        total += rising[n]
        n += 1
    level, rest = (count + total) // n, (count + total) % n
    for c in places:
        r = rank[c]
        if load[r] <= level:
            more = level - load[r]
            if rest > 0:
                more += 1
                rest -= 1
            load[r] += more
            part[c] += more


@njit(cache=True, nogil=True)
def _least_loaded(given, order, first, everyone, rank, load, rising, part):  # type: ignore[no-untyped-def]
    part[:] = 0
    for x in order:
        pour(given[x], everyone[first[x] : first[x + 1]], rank, load, rising, part)


@bare_njit()
def _in_turn(given, step, first, part):  # type: ignore[no-untyped-def]
    for x in range(len(given)):
        n = first[x + 1] - first[x]
        for i in range(n):
            part[first[x] + i] = given[x] // n + ((i - step) % n < given[x] % n)


@bare_njit()
def _level_once(amount, places, rank, load, rising, share):  # type: ignore[no-untyped-def]
    for c in places:
        load[rank[c]] -= share[c]
    _sorted_loads(places, rank, load, rising)
    total, level = 0.0, 0.0
    for n in range(len(places)):
        total += rising[n]
        level = (amount + total) / (n + 1)
        if n + 1 == len(places) or level <= rising[n + 1]:
            break
    for c in places:
        share[c] = max(0.0, level - load[rank[c]])
        load[rank[c]] += share[c]


@bare_njit()
def _round(count, places, share, part):  # type: ignore[no-untyped-def]
    left = count
    for c in places:
        part[c] = min(np.int64(np.floor(share[c])), count)
        left -= part[c]
        share[c] = part[c] - share[c]
    while left > 0:
        best = places[0]
        for c in places:
            if share[c] < share[best]:
                best = c
        share[best] += 2.0
        part[best] += 1
        left -= 1


@njit(cache=True, nogil=True)
def _levelled(given, order, first, everyone, rank, load, passes, rising, share, part):  # type: ignore[no-untyped-def]
    for x in order:
        n = first[x + 1] - first[x]
        for c in everyone[first[x] : first[x + 1]]:
            share[c] = given[x] / n
            load[rank[c]] += share[c]
    for _ in range(passes):
        for x in order:
            _level_once(given[x], everyone[first[x] : first[x + 1]], rank, load, rising, share)
    for x in order:
        _round(given[x], everyone[first[x] : first[x + 1]], share, part)


@bare_njit()
def _reach(origin, limit, part, load, first, rank, owner, starts, places, queue, gave, got):  # type: ignore[no-untyped-def]
    """Breadth first from a rank to one with a load of at most `limit`, -1 where there is none; and how many were
    reached. gave, got: int64[R] places by which a rank was reached, -1 = not yet."""
    gave[:] = -1
    queue[0], count, at = origin, 1, 0
    while at < count:
        for i in range(starts[queue[at]], starts[queue[at] + 1]):
            c = places[i]
            if part[c] == 0:
                continue
            for d in range(first[owner[c]], first[owner[c] + 1]):
                r = rank[d]
                if r != origin and gave[r] < 0:
                    gave[r], got[r] = c, d
                    queue[count] = r
                    count += 1
                    if load[r] <= limit:
                        return r, count
        at += 1
    return -1, count


@bare_njit()
def _move(origin, target, most, part, load, rank, gave, got):  # type: ignore[no-untyped-def]
    """As many assignments as the chain allows, no more than `most`."""
    r = target
    while r != origin:
        most = min(most, part[gave[r]])
        r = rank[gave[r]]
    load[origin] -= most
    load[target] += most
    r = target
    while r != origin:
        part[gave[r]] -= most
        part[got[r]] += most
        r = rank[gave[r]]


@bare_njit()
def _busiest(load):  # type: ignore[no-untyped-def]
    """The first of the highest."""
    busiest = 0
    for r in range(1, len(load)):
        if load[r] > load[busiest]:
            busiest = r
    return busiest


@njit(cache=True, nogil=True)
def _lower(part, load, first, rank, owner, starts, places, queue, gave, got):  # type: ignore[no-untyped-def]
    """Relieves the busiest rank until that is impossible; returns how many ranks, in `queue`, prove it."""
    while True:
        origin = _busiest(load)
        target, count = _reach(
            origin, load[origin] - 2, part, load, first, rank, owner, starts, places, queue, gave, got
        )
        if target < 0:
            return count
        _move(origin, target, (load[origin] - load[target]) // 2, part, load, rank, gave, got)


@njit(cache=True, nogil=True)
def _lowest(size, part, load, first, rank, owner, starts, places, queue, gave, got):  # type: ignore[no-untyped-def]
    """The optimum in fractions, from `size` ranks in `queue` that hold only what can go nowhere else."""
    total = 0
    for i in range(size):
        total += load[queue[i]]
    while True:
        pieces, scaled, count, target = part * size, load * size, 0, 0
        while target >= 0:
            origin = _busiest(scaled)
            if scaled[origin] <= total:
                return total / size
            target, count = _reach(
                origin, total - 1, pieces, scaled, first, rank, owner, starts, places, queue, gave, got
            )
            if target >= 0:
                most = min(scaled[origin] - total, total - scaled[target])
                _move(origin, target, most, pieces, scaled, rank, gave, got)
        total = 0
        for i in range(count):
            total += scaled[queue[i]]
        total, size = total // size, count


@njit(cache=True, nogil=True)
def split_counts(  # type: ignore[no-untyped-def]
    counts, step, replica_start, replica_slot, rank_of_slot, ranks, rule, passes, took, bound
):
    load, levels = np.zeros(ranks, np.int64), np.zeros(ranks)
    rising, heights = np.empty(ranks, np.int64), np.empty(ranks)
    queue, gave, got = np.empty(ranks, np.int64), np.empty(ranks, np.int64), np.empty(ranks, np.int64)
    for layer in range(counts.shape[1]):
        held, slots = replica_start[layer], replica_slot[layer]
        who, first, slot, rank, owner = replicated(held, slots, rank_of_slot)
        starts, places = places_of_ranks(rank, ranks)
        order, everyone, given = np.arange(len(who)), np.arange(len(slot)), np.empty(len(who), np.int64)
        part, share = np.zeros(len(slot), np.int64), np.zeros(len(slot))
        for s in range(len(counts)):
            take_singles(counts[s, layer], held, slots, rank_of_slot, load, took[s, layer])
            for x in range(len(who)):
                given[x] = counts[s, layer, who[x]]
            sort_by_load(order, given)
            if rule == EVEN:
                _in_turn(given, step[s], first, part)
            elif rule == WATER:
                for r in range(ranks):
                    levels[r] = load[r]
                _levelled(given, order, first, everyone, rank, levels, passes, heights, share, part)
            else:
                _least_loaded(given, order, first, everyone, rank, load, rising, part)
            if rule == OPTIMUM:
                size = _lower(part, load, first, rank, owner, starts, places, queue, gave, got)
                bound[s, layer] = _lowest(size, part, load, first, rank, owner, starts, places, queue, gave, got)
            for c in range(len(slot)):
                took[s, layer, slot[c]] = part[c]
