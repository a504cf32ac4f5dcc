"""Placement search with a price on copies between nodes, compiled; specification in `reference_traffic`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from easybalance_sim.kernels.numba_search import (
    ACCEPTED_PER_REBUILD,
    F32,
    PROPOSALS_PER_COOLING,
    SWAP_SHARE,
    _below,
    _next,
    _power,
    _power_moved,
    _refuses,
)


class _Layer(NamedTuple):
    """What does not change while a layer is searched."""

    rank_of_slot: Any
    node: Any
    pace: Any
    tokens: Any
    share: Any
    message: Any
    ids: Any
    source: Any
    weight: Any
    first: Any
    rows: Any


class _State(NamedTuple):
    """The placement, what follows from it, and room to work out what a change would do."""

    slots: Any
    has: Any
    copies: Any
    gain: Any
    misses: Any
    home: Any
    load: Any
    phi: Any
    value: Any
    new_gain: Any
    old_misses: Any
    new_phi: Any
    change: Any
    touched: Any
    fresh: Any
    stamp: Any


@njit(cache=True, nogil=True)
def _effects(copies, share, gain, misses):  # type: ignore[no-untyped-def]
    """Of one expert: the load of one replica on each node, and the odds that a source's choice avoids a node.

    Returns the expert's only node as a bit, 0 when it has replicas on several nodes and -1 when it has them on all.
    """
    nodes, total, away, home, held = len(copies), np.int64(0), 0.0, np.int64(0), 0
    for n in range(nodes):
        total += copies[n]
        if copies[n] == 0:
            away += share[n]
        else:
            held += 1
            home = np.int64(1) << n
    for n in range(nodes):
        gain[n] = share[n] / copies[n] + away / total if copies[n] > 0 else 0.0
        for to in range(nodes):
            misses[n, to] = 1.0 - copies[to] / total if copies[n] == 0 else 1.0
    return home if held == 1 and nodes > 1 else np.int64(-1 if held == nodes else 0)


@njit(cache=True, nogil=True, inline="always")
def _token(ids, source, t, home, misses, weight):  # type: ignore[no-untyped-def]
    """Expected distinct remote nodes of token t; sources are weighed by `weight` where its own is not known."""
    reached, split = np.int64(0), 0
    for k in range(ids.shape[1]):
        h = home[ids[t, k]]
        if h > 0:
            reached |= h
        elif h == 0:
            split += 1
    total, own = 0.0, np.int64(source[t])
    for n in range(len(weight)):
        if (reached >> n) & 1:
            total += 1.0 - weight[n] if own < 0 else np.float64(own != n)
    return total + _split(ids, own, t, home, misses, weight, reached) if split else total


@njit(cache=True, nogil=True)
def _split(ids, own, t, home, misses, weight, reached):  # type: ignore[no-untyped-def]
    """Of the nodes not reached for sure, those that the choice among replicas on several nodes may reach."""
    total = 0.0
    for s in range(len(weight)):
        if own >= 0 and own != s:
            continue
        share = weight[s] if own < 0 else 1.0
        for n in range(len(weight)):
            if n == s or (reached >> n) & 1:
                continue
            product = 1.0
            for k in range(ids.shape[1]):
                if home[ids[t, k]] == 0:
                    product *= misses[ids[t, k], s, n]
            total += share * (1.0 - product)
    return total


@njit(cache=True, nogil=True)
def _rebuild(layer, state):  # type: ignore[no-untyped-def]
    state.has[:] = False
    state.copies[:] = 0
    for p in range(len(state.slots)):
        r, e = layer.rank_of_slot[p], state.slots[p]
        state.has[r, e] = True
        state.copies[e, layer.node[r]] += 1
    state.load[:] = 0
    for e in range(len(state.copies)):
        state.home[e] = _effects(state.copies[e], layer.share[e], state.gain[e], state.misses[e])
    for p in range(len(state.slots)):
        r, e = layer.rank_of_slot[p], state.slots[p]
        state.load[r] += layer.tokens[e] * (state.gain[e, layer.node[r]] * layer.pace[r])
    for r in range(len(state.phi)):
        state.phi[r] = _power(state.load, r)
    total = 0.0
    for t in range(len(state.value)):
        state.value[t] = _token(layer.ids, layer.source, t, state.home, state.misses, layer.weight)
        total += state.value[t]
    total /= max(1, len(state.value))
    for e in range(len(state.copies)):
        for n in range(state.copies.shape[1]):
            if state.copies[e, n] == 0:
                total += layer.message[e, n]
    return total


@njit(cache=True, nogil=True)
def _shift_copies(state, e, f, a, b):  # type: ignore[no-untyped-def]
    """One replica of e leaves node a for node b, one of f comes the other way; b < 0: from nowhere, to nowhere."""
    state.copies[e, a] -= 1
    state.copies[f, a] += 1
    if b >= 0:
        state.copies[e, b] += 1
        state.copies[f, b] -= 1


@njit(cache=True, nogil=True)
def _load_change(layer, state, e, f, a, b):  # type: ignore[no-untyped-def]
    """Change of the summed eighth powers when rank a gets f for e and rank b (unless < 0) e for f."""
    delta = 0.0
    for r in range(len(state.phi)):
        n = layer.node[r]
        ke, kf = F32(0), F32(0)
        if state.has[r, e]:
            ke -= state.gain[e, n]
        if (state.has[r, e] and r != a) or r == b:
            ke += state.new_gain[0, n]
        if state.has[r, f]:
            kf -= state.gain[f, n]
        if (state.has[r, f] and r != b) or r == a:
            kf += state.new_gain[1, n]
        state.change[0, r], state.change[1, r] = ke * layer.pace[r], kf * layer.pace[r]
        if ke != 0 or kf != 0:
            state.new_phi[r] = _power_moved(
                state.load, r, layer.tokens, e, state.change[0, r], layer.tokens, f, state.change[1, r]
            )
            delta += state.new_phi[r] - state.phi[r]
        else:
            state.new_phi[r] = state.phi[r]
    return delta


@njit(cache=True, nogil=True)
def _traffic_change(layer, state, e, f, mark):  # type: ignore[no-untyped-def]
    """Change of the copies per token; `state.misses` already holds the new odds. Leaves what it found in `fresh`."""
    found, delta = 0, 0.0
    for x in (e, f):
        for i in range(layer.first[x], layer.first[x + 1]):
            t = layer.rows[i]
            if state.stamp[t] == mark:
                continue
            state.stamp[t] = mark
            state.touched[found] = t
            state.fresh[found] = _token(layer.ids, layer.source, t, state.home, state.misses, layer.weight)
            delta += state.fresh[found] - state.value[t]
            found += 1
    return found, delta / max(1, len(state.value))


@njit(cache=True, nogil=True)
def _messages(layer, state, e, f):  # type: ignore[no-untyped-def]
    total = 0.0
    for n in range(state.copies.shape[1]):
        if state.copies[e, n] == 0:
            total += layer.message[e, n]
        if state.copies[f, n] == 0:
            total += layer.message[f, n]
    return total


@njit(cache=True, nogil=True, inline="always")
def _draw(layer, state, random):  # type: ignore[no-untyped-def]
    """Slots p, q and the expert that p gets; q < 0: nothing is exchanged; p < 0: the move is not allowed."""
    p, q = _below(random, len(state.slots)), -1
    a, e = layer.rank_of_slot[p], state.slots[p]
    if _next(random) < SWAP_SHARE:
        q = _below(random, len(state.slots))
        f = np.int64(state.slots[q])
        if layer.rank_of_slot[q] == a or state.has[layer.rank_of_slot[q], e]:
            return -1, q, f
    else:
        f = _below(random, len(state.copies))
        if state.copies[e].sum() < 2:
            return -1, q, f
    return (-1 if e == f or state.has[a, f] else p), q, f


@njit(cache=True, nogil=True)
def _try(layer, state, p, q, f, price, temperature, random, mark):  # type: ignore[no-untyped-def]
    """Makes the change, or takes it back; returns whether it stands and its change of traffic."""
    a, e = layer.rank_of_slot[p], np.int64(state.slots[p])
    b = layer.rank_of_slot[q] if q >= 0 else -1
    here, there = layer.node[a], layer.node[b] if q >= 0 else -1
    crosses = here != there
    state.new_gain[0], state.new_gain[1] = state.gain[e], state.gain[f]
    found, traffic, home_e, home_f = 0, 0.0, state.home[e], state.home[f]
    if crosses:
        traffic = -_messages(layer, state, e, f)
        state.old_misses[0], state.old_misses[1] = state.misses[e], state.misses[f]
        _shift_copies(state, e, f, here, there)
        state.home[e] = _effects(state.copies[e], layer.share[e], state.new_gain[0], state.misses[e])
        state.home[f] = _effects(state.copies[f], layer.share[f], state.new_gain[1], state.misses[f])
        traffic += _messages(layer, state, e, f)
    delta = _load_change(layer, state, e, f, a, b) / (state.load.size)
    if crosses and len(state.value) > 0:
        found, change = _traffic_change(layer, state, e, f, mark)
        traffic += change
    delta += price * traffic
    if _refuses(random, delta, temperature):
        if crosses:
            _shift_copies(state, f, e, here, there)
            state.misses[e], state.misses[f] = state.old_misses[0], state.old_misses[1]
            state.home[e], state.home[f] = home_e, home_f
        return False, 0.0
    for r in range(len(state.phi)):
        ke, kf = state.change[0, r], state.change[1, r]
        if ke != 0 or kf != 0:
            for t in range(state.load.shape[1]):
                state.load[r, t] += ke * layer.tokens[e, t] + kf * layer.tokens[f, t]
            state.phi[r] = state.new_phi[r]
    for i in range(found):
        state.value[state.touched[i]] = state.fresh[i]
    state.gain[e], state.gain[f] = state.new_gain[0], state.new_gain[1]
    state.slots[p] = f
    state.has[a, e], state.has[a, f] = False, True
    if q >= 0:
        state.slots[q] = e
        state.has[b, f], state.has[b, e] = False, True
    return True, traffic


@njit(cache=True, nogil=True)
def _anneal(layer, state, price, proposals, hot, cold, random, best):  # type: ignore[no-untyped-def]
    """Anneals the placement of `state`, keeps the best one seen in `best`; returns its objective and traffic."""
    state.stamp[:] = -1
    traffic = _rebuild(layer, state)
    lowest = state.phi.sum() / state.load.size + price * traffic
    least = traffic
    best[:] = state.slots
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, proposals // PROPOSALS_PER_COOLING))
    accepted = 0
    for proposal in range(proposals):
        if proposal % PROPOSALS_PER_COOLING == 0:
            temperature *= cooling
        p, q, f = _draw(layer, state, random)
        if p < 0:
            continue
        stands, change = _try(layer, state, p, q, f, price, temperature, random, proposal)
        if not stands:
            continue
        traffic += change
        accepted += 1
        if accepted % ACCEPTED_PER_REBUILD == 0:
            traffic = _rebuild(layer, state)
        current = state.phi.sum() / state.load.size + price * traffic
        if current < lowest - 1e-7 * abs(lowest):
            lowest, least = current, traffic
            best[:] = state.slots
    return lowest, least


@njit(cache=True, nogil=True)
def _index(ids, experts):  # type: ignore[no-untyped-def]
    """Rows of the sample that chose each expert: where each expert's begin, and the rows."""
    first = np.zeros(experts + 1, np.int64)
    for t in range(ids.shape[0]):
        for k in range(ids.shape[1]):
            first[ids[t, k] + 1] += 1
    for e in range(experts):
        first[e + 1] += first[e]
    rows, at = np.empty(ids.size, np.int32), first.copy()
    for t in range(ids.shape[0]):
        for k in range(ids.shape[1]):
            rows[at[ids[t, k]]] = t
            at[ids[t, k]] += 1
    return first, rows


@njit(cache=True, nogil=True)
def _room(start, ranks, experts, nodes, windows, sampled):  # type: ignore[no-untyped-def]
    return _State(
        start.copy(), np.zeros((ranks, experts), np.bool_), np.zeros((experts, nodes), np.int64),
        np.zeros((experts, nodes), F32), np.ones((experts, nodes, nodes), F32), np.zeros(experts, np.int64),
        np.zeros((ranks, windows), F32), np.zeros(ranks), np.zeros(sampled, F32), np.zeros((2, nodes), F32),
        np.zeros((2, nodes, nodes), F32), np.zeros(ranks), np.zeros((2, ranks), F32), np.zeros(sampled, np.int32),
        np.zeros(sampled, F32), np.full(sampled, -1, np.int64),
    )  # fmt: skip


@njit(cache=True, nogil=True, parallel=True)
def search_traffic(  # type: ignore[no-untyped-def]
    start, rank_of_slot, node, pace, tokens, share, message, ids, source, weight, price, proposals, hot, cold, seed,
    out, objective, traffic,
):  # fmt: skip
    layers, experts, windows = tokens.shape
    for at in prange(layers):
        random = np.array([np.uint64(np.int64(seed + at) * 2654435769 + 88172645463325252)])
        first, rows = _index(ids[at], experts)
        layer = _Layer(
            rank_of_slot, node, pace, tokens[at], share[at], message[at], ids[at], source, weight, first, rows
        )
        state = _room(start[at], len(pace), experts, share.shape[2], windows, ids.shape[1])
        best = start[at].copy()
        objective[at], traffic[at] = _anneal(layer, state, price, proposals, hot, cold, random, best)
        out[at] = best


@njit(cache=True, nogil=True)
def _copies(has, node, message, ids, source, weight):  # type: ignore[no-untyped-def]
    """One layer and one way to put its ranks on nodes."""
    (ranks, experts), nodes = has.shape, len(weight)
    home, misses = np.zeros(experts, np.int64), np.ones((experts, nodes, nodes), F32)
    here, gain, total = np.zeros(nodes, np.int64), np.zeros(nodes, F32), 0.0
    for e in range(experts):
        here[:] = 0
        for r in range(ranks):
            here[node[r]] += has[r, e]
        home[e] = _effects(here, weight, gain, misses[e])
        for n in range(nodes):
            if here[n] == 0:
                total += message[e, n]
    distinct = 0.0
    for t in range(ids.shape[0]):
        distinct += _token(ids, source, t, home, misses, weight)
    return total + distinct / max(1, ids.shape[0])


@njit(cache=True, nogil=True, parallel=True)
def copies_per_token(has, node, message, ids, source, weight):  # type: ignore[no-untyped-def]
    layers, ways = node.shape[:2]
    out = np.empty((layers, ways))
    for at in prange(layers):
        for way in range(ways):
            out[at, way] = _copies(has[at], node[at, way], message[at], ids[at], source, weight)
    return out
