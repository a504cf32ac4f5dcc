"""Annealing of placements on sample windows, compiled; specification in `reference_search`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit

F32 = np.float32
SWAP_SHARE = np.uint64(3006477107)
PROPOSALS_PER_COOLING = 64
ACCEPTED_PER_REBUILD = 4096
COLD_SHARE = 20
FEWEST_COLD = 2000


@njit(cache=True, nogil=True, inline="always")
def _next(random):  # type: ignore[no-untyped-def]
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return (x * np.uint64(2685821657736338717)) >> np.uint64(32)


@njit(cache=True, nogil=True, inline="always")
def _below(random, bound):  # type: ignore[no-untyped-def]
    return np.int64((_next(random) * np.uint64(bound)) >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def _refuses(random, delta, temperature):  # type: ignore[no-untyped-def]
    return delta > 0 and np.float64(_next(random)) * 2.3283064365386963e-10 >= np.exp(-delta / temperature)


# Rows are passed as array and index: views would be counted references in the innermost loop.
@njit(cache=True, nogil=True, fastmath=True)
def _power(load, r):  # type: ignore[no-untyped-def]
    total = F32(0)
    for t in range(load.shape[1]):
        v = load[r, t]
        v *= v
        v *= v
        total += v * v
    return np.float64(total)


@njit(cache=True, nogil=True, fastmath=True)
def _power_moved(load, r, x, i, kx, y, j, ky):  # type: ignore[no-untyped-def]
    """sum_t (load[r] + kx·x[i] + ky·y[j])^8."""
    total = F32(0)
    for t in range(load.shape[1]):
        v = load[r, t] + kx * x[i, t] + ky * y[j, t]
        v *= v
        v *= v
        total += v * v
    return np.float64(total)


@njit(cache=True, nogil=True, fastmath=True)
def _power_swapped(row_a, row_b, e, f, pace_a, pace_b):  # type: ignore[no-untyped-def]
    total = F32(0)
    for t in range(row_a.shape[0]):
        d = e[t] - f[t]
        v = row_a[t] - d * pace_a
        w = row_b[t] + d * pace_b
        v *= v
        w *= w
        v *= v
        w *= w
        total += v * v + w * w
    return np.float64(total)


@njit(cache=True, nogil=True, fastmath=True)
def _slot_cost(tokens, e, copies, slope, active, per_step, out, i):  # type: ignore[no-untyped-def]
    share = F32(1.0) / F32(copies)
    if active == 0:
        for t in range(tokens.shape[1]):
            out[i, t] = slope * tokens[e, t] * share
    else:
        for t in range(tokens.shape[1]):
            x = tokens[e, t] * share
            out[i, t] = slope * x + active * (F32(1.0) - np.exp(-x * per_step[t]))


@njit(cache=True, nogil=True, fastmath=True)
def _rebuild(slots, rank_of_slot, tokens, pace, slope, active, per_step, count, has, cost, load, phi):  # type: ignore[no-untyped-def]
    """Everything that follows from the slots, free of float32 drift."""
    count[:] = 0
    has[:] = False
    load[:] = 0
    for p in range(len(slots)):
        count[slots[p]] += 1
        has[rank_of_slot[p], slots[p]] = True
    for e in range(len(count)):
        _slot_cost(tokens, e, count[e], slope, active, per_step, cost, e)
    for p in range(len(slots)):
        r = rank_of_slot[p]
        for t in range(load.shape[1]):
            load[r, t] += cost[slots[p], t] * pace[r]
    for r in range(len(phi)):
        phi[r] = _power(load, r)


@njit(cache=True, nogil=True)
def _moves(slots, rank_of_slot, held):  # type: ignore[no-untyped-def]
    moved = 0
    for p in range(len(slots)):
        if not held[rank_of_slot[p], slots[p]]:
            moved += 1
    return moved


@njit(cache=True, nogil=True, fastmath=True)
def _hand_over_change(a, e, f, has, cost, load, phi, pace, count, tokens, slope, active, per_step, rows, new):  # type: ignore[no-untyped-def]
    """Change of F when rank a's slot goes from expert e to f; leaves new costs in rows[0:2], changes in rows[2:4] and
    the touched ranks' powers in new."""
    _slot_cost(tokens, e, count[e] - 1, slope, active, per_step, rows, 0)
    _slot_cost(tokens, f, count[f] + 1, slope, active, per_step, rows, 1)
    for t in range(rows.shape[1]):
        rows[2, t] = rows[0, t] - cost[e, t]
        rows[3, t] = rows[1, t] - cost[f, t]
    delta = 0.0
    for r in range(len(phi)):
        if r == a:
            new[r] = _power_moved(load, r, rows, 1, pace[r], cost, e, -pace[r])
        elif has[r, e] or has[r, f]:
            new[r] = _power_moved(load, r, rows, 2, pace[r] * F32(has[r, e]), rows, 3, pace[r] * F32(has[r, f]))
        else:
            continue
        delta += new[r] - phi[r]
    return delta


@njit(cache=True, nogil=True, fastmath=True)
def _hand_over(a, e, f, has, cost, load, phi, pace, count, rows, new):  # type: ignore[no-untyped-def]
    """What `_hand_over_change` looked at is done."""
    for r in range(len(phi)):
        if r == a:
            for t in range(rows.shape[1]):
                load[r, t] += (rows[1, t] - cost[e, t]) * pace[r]
        elif has[r, e] or has[r, f]:
            ke, kf = pace[r] * F32(has[r, e]), pace[r] * F32(has[r, f])
            for t in range(rows.shape[1]):
                load[r, t] += ke * rows[2, t] + kf * rows[3, t]
        else:
            continue
        phi[r] = new[r]
    has[a, e], has[a, f] = False, True
    count[e] -= 1
    count[f] += 1
    for t in range(rows.shape[1]):
        cost[e, t] = rows[0, t]
        cost[f, t] = rows[1, t]


@njit(cache=True, nogil=True, fastmath=True)
def _anneal(  # type: ignore[no-untyped-def]
    slots, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, hot, cold, random,
    best, count, has, cost, load, phi, rows, new,
):  # fmt: skip
    """Anneals `slots`, leaves the best placement seen in `best`; returns its value."""
    _rebuild(slots, rank_of_slot, tokens, pace, slope, active, per_step, count, has, cost, load, phi)
    moved, accepted = _moves(slots, rank_of_slot, held), 0
    lowest = phi.sum() + price * moved
    best[:] = slots
    temperature = hot * phi.sum() / len(phi)
    cooling = (cold / hot) ** (1.0 / max(1, proposals // PROPOSALS_PER_COOLING))
    for proposal in range(proposals):
        if proposal % PROPOSALS_PER_COOLING == 0:
            temperature *= cooling
        p = _below(random, len(slots))
        a, e = rank_of_slot[p], slots[p]
        if _next(random) < SWAP_SHARE:
            q = _below(random, len(slots))
            b, f = rank_of_slot[q], slots[q]
            if a == b or e == f or has[b, e] or has[a, f]:
                continue
            shift = np.int64(held[a, e]) + np.int64(held[b, f]) - np.int64(held[a, f]) - np.int64(held[b, e])
            if shift > 0 and moved + shift > most_moves:
                continue
            delta = (
                _power_swapped(load[a], load[b], cost[e], cost[f], pace[a], pace[b]) + price * shift - phi[a] - phi[b]
            )
            if _refuses(random, delta, temperature):
                continue
            slots[p], slots[q] = f, e
            has[a, e], has[b, f], has[a, f], has[b, e] = False, False, True, True
            for t in range(load.shape[1]):
                d = cost[e, t] - cost[f, t]
                load[a, t] -= d * pace[a]
                load[b, t] += d * pace[b]
            phi[a], phi[b] = _power(load, a), _power(load, b)
        else:
            f = _below(random, len(count))
            if e == f or count[e] < 2 or has[a, f]:
                continue
            shift = np.int64(held[a, e]) - np.int64(held[a, f])
            if shift > 0 and moved + shift > most_moves:
                continue
            delta = price * shift + _hand_over_change(
                a, e, f, has, cost, load, phi, pace, count, tokens, slope, active, per_step, rows, new
            )  # fmt: skip
            if _refuses(random, delta, temperature):
                continue
            slots[p] = f
            _hand_over(a, e, f, has, cost, load, phi, pace, count, rows, new)
        moved += shift
        accepted += 1
        if accepted % ACCEPTED_PER_REBUILD == 0:
            _rebuild(slots, rank_of_slot, tokens, pace, slope, active, per_step, count, has, cost, load, phi)
        value = phi.sum() + price * moved
        if value < lowest * 0.9999995:
            lowest = value
            best[:] = slots
    return lowest


@njit(cache=True, nogil=True)
def _search_layer(  # type: ignore[no-untyped-def]
    start, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, seed, out,
):  # fmt: skip
    (experts, windows), ranks = tokens.shape, len(pace)
    random = np.array([np.uint64(np.int64(seed) * 2654435769 + 88172645463325252)])
    count, has = np.zeros(experts, np.int64), np.zeros((ranks, experts), np.bool_)
    cost, load, phi = np.empty((experts, windows), F32), np.empty((ranks, windows), F32), np.empty(ranks)
    rows, new = np.empty((4, windows), F32), np.empty(ranks)
    slots, best = start.copy(), start.copy()
    low = _anneal(
        slots, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves,
        max(FEWEST_COLD, proposals // COLD_SHARE), 1e-4, 1e-6, random, out, count, has, cost, load, phi, rows, new,
    )  # fmt: skip
    hot = min(max(low / (windows * ranks) - 1.0, 1e-3), 0.1)
    slots[:] = out
    lowest = _anneal(
        slots, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, hot, hot / 100,
        random, best, count, has, cost, load, phi, rows, new,
    )  # fmt: skip
    if lowest <= low:
        out[:] = best
    return min(lowest, low)


def search(  # type: ignore[no-untyped-def]
    start, rank_of_slot, tokens, pace, slope, active, per_step, held, price, most_moves, proposals, seed, out, lowest
):  # fmt: skip
    """Layers on threads: the compiled walk holds no lock, and compiles faster than a parallel loop would."""

    def walk(layer: int) -> None:
        lowest[layer] = _search_layer(
            start[layer], rank_of_slot, tokens[layer], pace, F32(slope), F32(active), per_step, held[layer], price,
            most_moves, proposals, seed + layer, out[layer],
        )  # fmt: skip

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(walk, range(len(start))):
            pass
