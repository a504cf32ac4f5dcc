"""Placement search with a price on copies between nodes, compiled; specification in `reference_traffic`.

A token from source s avoids node n with the product of its experts' odds. These products are kept per token and source
(`avoid`) and summed over the tokens of each expert (`sums`), so that what a change of two experts does to the traffic
needs only their sums and the tokens that use both. Pairs (s, n) lie in rows at s · N + n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.numba_search import (
    ACCEPTED_PER_REBUILD,
    F32,
    PROPOSALS_PER_COOLING,
    SWAP_SHARE,
    _below,
    _next,
    _power,
)
from easybalance_sim.kernels.threads import on_threads

SURE = 1e-6
"""Stands for odds of 0, so that a factor can be taken out of a product again."""


# Arrays are passed one by one, rows as array and index: tuples and views would cost more than the work on them.
@bare_njit(fastmath=True)
def _power_moved(load, r, tokens, e, ke, f, kf):  # type: ignore[no-untyped-def]
    """sum_t (load[r] + ke·tokens[e] + kf·tokens[f])^8."""
    total = F32(0)
    for t in range(load.shape[1]):
        v = load[r, t] + ke * tokens[e, t] + kf * tokens[f, t]
        v *= v
        v *= v
        total += v * v
    return np.float64(total)


@bare_njit()
def _effects(copies, e, share, gain, odds, i, least):  # type: ignore[no-untyped-def]
    """gain[i]: load of one replica of e on each node · odds[i]: that the choice of source s avoids node n, at least
    `least`."""
    nodes, total, away = copies.shape[1], 0.0, 0.0
    for n in range(nodes):
        total += copies[e, n]
        if copies[e, n] == 0:
            away += share[e, n]
    for n in range(nodes):
        gain[i, n] = share[e, n] / copies[e, n] + away / total if copies[e, n] > 0 else 0.0
        for to in range(nodes):
            odds[i, n * nodes + to] = max(1.0 - copies[e, to] / total, least) if copies[e, n] == 0 else 1.0


@bare_njit()
def _messages(copies, message, e):  # type: ignore[no-untyped-def]
    total = 0.0
    for n in range(copies.shape[1]):
        if copies[e, n] == 0:
            total += message[e, n]
    return total


@bare_njit()
def _products(ids, source, weight, odds, avoid, sums):  # type: ignore[no-untyped-def]
    """Fills avoid[t], weighed by how likely token t comes from s, and its sums; returns the copies per token."""
    nodes, sampled, total = len(weight), len(source), 0.0
    for e in range(len(sums)):
        for j in range(sums.shape[1]):
            sums[e, j] = 0.0
    for t in range(sampled):
        for s in range(nodes):
            if source[t] >= 0 and source[t] != s:
                continue
            likely = (weight[s] if source[t] < 0 else 1.0) / sampled
            for j in range(s * nodes, (s + 1) * nodes):
                product = likely
                for k in range(ids.shape[1]):
                    product *= odds[ids[t, k], j]
                avoid[t, j] = product
                total += likely - product
                for k in range(ids.shape[1]):
                    sums[ids[t, k], j] += product
    return total


# Loops, not slices: an assignment to a slice takes numba a second longer to compile.
@bare_njit()
def _rebuild(  # type: ignore[no-untyped-def]
    slots, rank_of_slot, node, pace, tokens, share, message, ids, source, weight, has, copies, gain, odds, avoid, sums,
    load, phi,
):  # fmt: skip
    """Everything that follows from the slots, free of drift; returns the traffic."""
    (ranks, experts), nodes, traffic = has.shape, len(weight), 0.0
    for e in range(experts):
        for r in range(ranks):
            has[r, e] = False
        for n in range(nodes):
            copies[e, n] = 0
    for p in range(len(slots)):
        has[rank_of_slot[p], slots[p]] = True
        copies[slots[p], node[rank_of_slot[p]]] += 1
    for e in range(experts):
        _effects(copies, e, share, gain, odds, e, SURE)
        traffic += _messages(copies, message, e)
    for r in range(ranks):
        for t in range(load.shape[1]):
            load[r, t] = 0.0
    for p in range(len(slots)):
        r, e = rank_of_slot[p], slots[p]
        carried = gain[e, node[r]] * pace[r]
        for t in range(load.shape[1]):
            load[r, t] += tokens[e, t] * carried
    for r in range(ranks):
        phi[r] = _power(load, r)
    return traffic + _products(ids, source, weight, odds, avoid, sums)


@bare_njit()
def _exchange(copies, e, f, a, b):  # type: ignore[no-untyped-def]
    """One replica of e leaves node a for node b, one of f comes the other way; b < 0: from nowhere, to nowhere."""
    copies[e, a] -= 1
    copies[f, a] += 1
    if b >= 0:
        copies[e, b] += 1
        copies[f, b] -= 1


@bare_njit()
def _traffic_change(  # type: ignore[no-untyped-def]
    e, f, a, b, share, message, first, users, copies, odds, avoid, sums, new_gain, factor
):  # fmt: skip
    """Change of the copies per token of this exchange between nodes, which is left made in `copies`; what follows for e
    and f is left in new_gain[0:2] and, as factors of the odds - 1, in factor[0:2]."""
    experts, delta = len(copies), -_messages(copies, message, e) - _messages(copies, message, f)
    _exchange(copies, e, f, a, b)
    _effects(copies, e, share, new_gain, factor, 0, SURE)
    _effects(copies, f, share, new_gain, factor, 1, SURE)
    delta += _messages(copies, message, e) + _messages(copies, message, f)
    for j in range(factor.shape[1]):
        factor[0, j] = factor[0, j] / odds[e, j] - 1.0
        factor[1, j] = factor[1, j] / odds[f, j] - 1.0
        delta -= factor[0, j] * sums[e, j] + factor[1, j] * sums[f, j]
    for i in range(first[e * experts + f], first[e * experts + f + 1]):
        for j in range(factor.shape[1]):
            delta -= avoid[users[i], j] * factor[0, j] * factor[1, j]
    return delta


@bare_njit()
def _load_change(  # type: ignore[no-untyped-def]
    e, f, a, b, base, limit, node, pace, tokens, has, gain, new_gain, load, phi, change
):  # fmt: skip
    """base + change of the summed eighth powers when rank a gets f for e and rank b (unless < 0) e for f.

    Leaves the changes of the ranks' loads per token of e and f in change[0:2], their powers in change[2]. Stops once
    the sum cannot stay below `limit` any more: powers are not negative.
    """
    total = base
    for r in range(len(phi)):
        n, ke, kf = node[r], F32(0), F32(0)
        if has[r, e]:
            ke -= gain[e, n]
        if (has[r, e] and r != a) or r == b:
            ke += new_gain[0, n]
        if has[r, f]:
            kf -= gain[f, n]
        if (has[r, f] and r != b) or r == a:
            kf += new_gain[1, n]
        change[0, r], change[1, r] = ke * pace[r], kf * pace[r]
        if ke != 0 or kf != 0:
            total -= phi[r]
    for r in range(len(phi)):
        ke, kf = F32(change[0, r]), F32(change[1, r])
        if ke != 0 or kf != 0:
            if total >= limit:
                return total
            change[2, r] = _power_moved(load, r, tokens, e, ke, f, kf)
            total += change[2, r]
    return total


@bare_njit()
def _shift_loads(e, f, tokens, load, phi, change):  # type: ignore[no-untyped-def]
    for r in range(len(phi)):
        ke, kf = F32(change[0, r]), F32(change[1, r])
        if ke != 0 or kf != 0:
            for t in range(load.shape[1]):
                load[r, t] += ke * tokens[e, t] + kf * tokens[f, t]
            phi[r] = change[2, r]


@bare_njit()
def _shift_odds(e, i, ids, first, users, gain, odds, avoid, sums, new_gain, factor):  # type: ignore[no-untyped-def]
    """Expert e takes over what `_traffic_change` found for it in row i; factor[2] is room for the step of a token."""
    experts, width = len(sums), factor.shape[1]
    for at in range(first[e * experts + e], first[e * experts + e + 1]):
        t = users[at]
        for j in range(width):
            factor[2, j] = avoid[t, j] * factor[i, j]
            avoid[t, j] += factor[2, j]
        for k in range(ids.shape[1]):
            x = ids[t, k]
            for j in range(width):
                sums[x, j] += factor[2, j]
    for j in range(width):
        odds[e, j] *= 1.0 + factor[i, j]
    for n in range(gain.shape[1]):
        gain[e, n] = new_gain[i, n]


@bare_njit()
def _objective(phi, size, price, traffic):  # type: ignore[no-untyped-def]
    total = 0.0
    for r in range(len(phi)):
        total += phi[r]
    return total / size + price * traffic


@bare_njit()
def _replicas(copies, e):  # type: ignore[no-untyped-def]
    total = 0
    for n in range(copies.shape[1]):
        total += copies[e, n]
    return total


@bare_njit()
def _anneal(  # type: ignore[no-untyped-def]
    slots, rank_of_slot, node, pace, tokens, share, message, ids, source, weight, first, users, has, copies, gain, odds,
    avoid, sums, load, phi, new_gain, factor, change, price, proposals, hot, cold, random, out,
):  # fmt: skip
    """Leaves the best placement seen in `out`; returns its objective and traffic."""
    size, accepted, temperature, traffic, lowest, least = np.float64(load.size), 0, hot, 0.0, np.inf, 0.0
    cooling = (cold / hot) ** (1.0 / max(1, proposals // PROPOSALS_PER_COOLING))
    for proposal in range(-1, proposals):
        if proposal >= 0:
            if proposal % PROPOSALS_PER_COOLING == 0:
                temperature *= cooling
            p, q, b = _below(random, len(slots)), np.int64(-1), np.int64(-1)
            a, e = np.int64(rank_of_slot[p]), np.int64(slots[p])
            if _next(random) < SWAP_SHARE:
                q = _below(random, len(slots))
                b, f = np.int64(rank_of_slot[q]), np.int64(slots[q])
                if a == b or e == f or has[b, e] or has[a, f]:
                    continue
            else:
                f = _below(random, len(copies))
                if e == f or has[a, f] or _replicas(copies, e) < 2:
                    continue
            limit = -temperature * np.log((np.float64(_next(random)) + 1.0) * 2.0**-32) * size
            here, there, shift = node[a], node[b] if b >= 0 else np.int64(-1), 0.0
            if here != there:
                shift = _traffic_change(
                    e, f, here, there, share, message, first, users, copies, odds, avoid, sums, new_gain, factor
                )
            else:
                for n in range(len(weight)):
                    new_gain[0, n], new_gain[1, n] = gain[e, n], gain[f, n]
            base = price * shift * size
            if _load_change(
                e, f, a, b, base, limit, node, pace, tokens, has, gain, new_gain, load, phi, change
            ) >= limit:  # fmt: skip
                if here != there:
                    _exchange(copies, f, e, here, there)
                continue
            _shift_loads(e, f, tokens, load, phi, change)
            if here != there:
                _shift_odds(e, 0, ids, first, users, gain, odds, avoid, sums, new_gain, factor)
                _shift_odds(f, 1, ids, first, users, gain, odds, avoid, sums, new_gain, factor)
            slots[p], has[a, e], has[a, f] = f, False, True
            if q >= 0:
                slots[q], has[b, f], has[b, e] = e, False, True
            traffic += shift
            accepted += 1
        if accepted % ACCEPTED_PER_REBUILD == 0:
            traffic = _rebuild(
                slots, rank_of_slot, node, pace, tokens, share, message, ids, source, weight, has, copies, gain, odds,
                avoid, sums, load, phi,
            )  # fmt: skip
        current = _objective(phi, size, price, traffic)
        if current < lowest - 1e-7 * abs(lowest) or proposal < 0:
            lowest, least = current, traffic
            for p in range(len(slots)):
                out[p] = slots[p]
    return lowest, least


def search_traffic(  # type: ignore[no-untyped-def]
    start, rank_of_slot, node, pace, tokens, share, message, ids, source, weight, price, proposals, hot, cold, seed,
    out, objective, traffic,
):  # fmt: skip
    """Layers on threads: the compiled walk holds no lock, and compiles faster than a parallel loop would."""

    (experts, windows), nodes = tokens.shape[1:], len(weight)

    def walk(at: int) -> None:
        random = np.array([((seed + at) * 2654435769 + 88172645463325252) & 0xFFFFFFFFFFFFFFFF], np.uint64)
        arrays = (
            start[at].copy(), rank_of_slot, node, pace, tokens[at], share[at], message[at], ids[at], source, weight,
            *_index(ids[at], experts), *_room(len(pace), experts, windows, nodes, len(source)),
        )  # fmt: skip
        objective[at], traffic[at] = _anneal(
            *arrays, float(price[at]), int(proposals), float(hot[at]), float(cold[at]), random, out[at]
        )

    for _ in on_threads(walk, len(start)):
        pass


def _index(ids: Any, experts: int) -> tuple[Any, ...]:
    """Tokens of each pair of experts, an expert with itself included: where each pair's begin, and the tokens."""
    wide = ids.astype(np.int64)
    pair = (wide[:, :, None] * experts + wide[:, None, :]).ravel()
    first = np.zeros(experts * experts + 1, np.int64)
    np.cumsum(np.bincount(pair, minlength=experts * experts), out=first[1:])
    return first, (np.argsort(pair, kind="stable") // max(1, ids.shape[1] ** 2)).astype(np.int32)


def _room(ranks: int, experts: int, windows: int, nodes: int, sampled: int) -> tuple[Any, ...]:
    """has, copies, gain, odds, avoid, sums, load, phi, new_gain, factor, change."""
    square = nodes * nodes
    return (
        np.zeros((ranks, experts), np.bool_), np.zeros((experts, nodes), np.int64), np.zeros((experts, nodes), F32),
        np.ones((experts, square)), np.zeros((sampled, square)), np.zeros((experts, square)),
        np.zeros((ranks, windows), F32), np.zeros(ranks), np.zeros((2, nodes), F32), np.zeros((3, square)),
        np.zeros((3, ranks)),
    )  # fmt: skip


@bare_njit()
def _copies_of_layer(has, node, message, ids, source, weight, copies, gain, odds, out):  # type: ignore[no-untyped-def]
    (ranks, experts), nodes, sampled = has.shape, len(weight), len(source)
    for way in range(len(node)):
        total = 0.0
        for e in range(experts):
            for n in range(nodes):
                copies[e, n] = 0
            for r in range(ranks):
                copies[e, node[way, r]] += has[r, e]
            _effects(copies, e, message, gain, odds, e, 0.0)
            total += _messages(copies, message, e)
        for t in range(sampled):
            for s in range(nodes):
                if source[t] >= 0 and source[t] != s:
                    continue
                likely = (weight[s] if source[t] < 0 else 1.0) / sampled
                for j in range(s * nodes, (s + 1) * nodes):
                    product = 1.0
                    for k in range(ids.shape[1]):
                        product *= odds[ids[t, k], j]
                    total += likely * (1.0 - product)
        out[way] = total


def copies_per_token(has, node, message, ids, source, weight):  # type: ignore[no-untyped-def]
    """Layers on threads."""
    out, (_, ranks, experts), nodes = np.empty(node.shape[:2]), has.shape, len(weight)

    def count(at: int) -> None:
        _, copies, gain, odds, *_ = _room(ranks, experts, 0, nodes, 0)
        _copies_of_layer(has[at], node[at], message[at], ids[at], source, weight, copies, gain, odds, out[at])

    for _ in on_threads(count, len(node)):
        pass
    return out
