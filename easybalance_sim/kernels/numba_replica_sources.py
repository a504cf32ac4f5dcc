"""Replica choice by source rank, compiled; specification in `reference_replica_sources`."""

from __future__ import annotations

import numpy as np
from numba import njit

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.numba_dispatch import _mixed
from easybalance_sim.kernels.numba_replicas import pour, replicated, sort_by_load, take_singles

ALONE, NEAR, NEAR_TOGETHER, TWO_ALONE, TWO_DELAYED, WEIGHTED = range(6)
U = np.uint64


@bare_njit()
def _place(seed, step, layer, source, expert):  # type: ignore[no-untyped-def]
    """What `draw` has mixed before the last number comes in."""
    drawn = _mixed(U(seed) + U(0x9E3779B97F4A7C15) * U(step + 1)) + (U(layer) << U(48))
    return _mixed(drawn + (U(source) << U(32)) + U(expert))


@bare_njit()
def _of_two(count, first, last, rank, seen, count_own, place, part):  # type: ignore[no-untyped-def]
    replicas = last - first
    for n in range(count):
        a = np.int64(_mixed(place + U(2 * n)) >> U(48)) % replicas
        b = np.int64(_mixed(place + U(2 * n + 1)) >> U(48)) % (replicas - 1)
        b += b >= a
        c = first + (b if seen[rank[first + b]] < seen[rank[first + a]] else a)
        part[c] += 1
        if count_own:
            seen[rank[c]] += 1


@bare_njit()
def _by_weight(count, first, last, slot, weights, place, part):  # type: ignore[no-untyped-def]
    total = 0
    for c in range(first, last):
        total += weights[slot[c]]
    equal = total == 0
    if equal:
        total = last - first
    drawn = np.int64(_mixed(place) >> U(48))
    reached, before = np.int64(0), np.int64(0)
    for c in range(first, last):
        reached += np.int64(1 if equal else weights[slot[c]])
        upto = ((reached * count << 16) + drawn * total) // (total << 16)
        part[c] += upto - before
        before = upto


@bare_njit()
def _choice(first, last, rank, node, source, near, chosen):  # type: ignore[no-untyped-def]
    """Writes the places of all or of the nearest replicas to `chosen`; returns how many."""
    n = 0
    for c in range(first, last if near else first):
        if rank[c] == source:
            chosen[0] = c
            return 1
        if node[rank[c]] == node[source]:
            chosen[n] = c
            n += 1
    if n == 0:
        for c in range(first, last):
            chosen[n] = c
            n += 1
    return n


@bare_njit()
def _see(loads, newest, window, layer, seen):  # type: ignore[no-untyped-def]
    seen[:] = 0
    for row in range(newest - window + 1, newest + 1):
        for r in range(len(seen)):
            seen[r] += loads[row, layer, r]


@bare_njit()
def _see_all(counts, held, slots, rank_of_slot, seen):  # type: ignore[no-untyped-def]
    """Rank loads of the experts with one replica, all sources together."""
    seen[:] = 0
    for e in range(counts.shape[1]):
        if held[e + 1] - held[e] == 1:
            for source in range(len(counts)):
                seen[rank_of_slot[slots[held[e]]]] += counts[source, e]


@njit(cache=True, nogil=True)
def split_by_source(  # type: ignore[no-untyped-def]
    counts, step, replica_start, replica_slot, rank_of_slot, node, rule, seed, weights, loads, window, delay, sent
):
    ranks, earlier = len(node), len(loads) - len(counts)
    seen, own, rising = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64), np.empty(ranks, np.int64)
    chosen = np.empty(ranks, np.int64)
    for layer in range(counts.shape[1]):
        held, slots = replica_start[layer], replica_slot[layer]
        who, first, slot, rank, _ = replicated(held, slots, rank_of_slot)
        order, given, part = np.arange(len(who)), np.empty(len(who), np.int64), np.empty(len(slot), np.int64)
        for s in range(len(counts)):
            if rule == TWO_DELAYED:
                _see(loads, earlier + s - delay, window, layer, seen)
            elif rule == NEAR_TOGETHER:
                _see_all(counts[s, layer], held, slots, rank_of_slot, seen)
            for source in range(ranks):
                out = sent[s, layer, source]
                take_singles(counts[s, layer, source], held, slots, rank_of_slot, own, out)
                if rule == ALONE or rule == NEAR or rule == TWO_ALONE:
                    for r in range(ranks):
                        seen[r] = own[r]
                for i in range(len(who)):
                    given[i] = counts[s, layer, source, who[i]]
                sort_by_load(order, given)
                part[:] = 0
                for x in order:
                    if rule == TWO_ALONE or rule == TWO_DELAYED:
                        place = _place(seed, step[s], layer, source, who[x])
                        _of_two(given[x], first[x], first[x + 1], rank, seen, rule == TWO_ALONE, place, part)
                    elif rule == WEIGHTED:
                        place = _place(seed, step[s], layer, source, who[x])
                        _by_weight(given[x], first[x], first[x + 1], slot, weights[s, layer], place, part)
                    else:
                        n = _choice(first[x], first[x + 1], rank, node, source, rule != ALONE, chosen)
                        pour(given[x], chosen[:n], rank, seen, rising, part)
                for c in range(len(slot)):
                    out[slot[c]] = part[c]
                for p in range(len(rank_of_slot)):
                    loads[earlier + s, layer, rank_of_slot[p]] += out[p]


@njit(cache=True, nogil=True)
def share_by_source(counts, took, replica_start, replica_slot, rank_of_slot, node, sent):  # type: ignore[no-untyped-def]
    ranks, left, need = len(node), np.empty(len(rank_of_slot), np.int64), np.empty(len(node), np.int64)
    for layer in range(counts.shape[1]):
        held, slots = replica_start[layer], replica_slot[layer]
        for s in range(len(counts)):
            for p in range(len(left)):
                left[p] = took[s, layer, p]
            for e in range(counts.shape[3]):
                first, last = held[e], held[e + 1]
                if last - first == 1:
                    for source in range(ranks):
                        sent[s, layer, source, slots[first]] = counts[s, layer, source, e]
                    continue
                for source in range(ranks):
                    need[source] = counts[s, layer, source, e]
                for reach in range(3):
                    for source in range(ranks):
                        for i in range(last - first):
                            p = slots[first + (i + source) % (last - first)]
                            r = rank_of_slot[p]
                            near = r == source or (reach > 0 and node[r] == node[source]) or reach == 2
                            if near and need[source] > 0:
                                more = min(need[source], left[p])
                                sent[s, layer, source, p] += more
                                need[source] -= more
                                left[p] -= more


@bare_njit()
def fill_slots(experts, start, source, replica_start, replica_slot, sent, slots):  # type: ignore[no-untyped-def]
    for s in range(len(start) - 1):
        for layer in range(experts.shape[1]):
            for t in range(start[s], start[s + 1]):
                for k in range(experts.shape[2]):
                    i = replica_start[layer, experts[t, layer, k]]
                    while sent[s, layer, source[t], replica_slot[layer, i]] == 0:
                        i += 1
                    slot = replica_slot[layer, i]
                    sent[s, layer, source[t], slot] -= 1
                    slots[t, layer, k] = slot
