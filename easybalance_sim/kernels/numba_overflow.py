"""Overflow of ranks inside one step, compiled; specification in `reference_overflow`.

Only assignments on ranks over the cap are sorted by gate, and experts are looked through only for those that leave.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NONE = -1
NEXT, LEAST, DROP = range(3)
MOVED, SHIFTED, DROPPED, STUCK = range(4)
ROUNDING = 1e-9


@njit(cache=True, nogil=True)
def _roomiest(homes, load):  # type: ignore[no-untyped-def]
    best = homes[0]
    for rank in homes:
        if load[rank] < load[best]:
            best = rank
    return best


@njit(cache=True, nogil=True)
def _deal(experts, ranks, begin, home, out, out_ranks, load, count):  # type: ignore[no-untyped-def]
    """Copies the choice and gives every assignment a rank; returns their number."""
    total = 0
    for t in range(experts.shape[0]):
        for k in range(experts.shape[1]):
            e = experts[t, k]
            out[t, k], out_ranks[t, k] = e, NONE
            if e == NONE:
                continue
            n = begin[e + 1] - begin[e]
            rank = ranks[t, k] if ranks[t, k] >= 0 else home[begin[e] + (e + count[e]) % n]
            out_ranks[t, k] = rank
            load[rank] += 1
            count[e] += 1
            total += 1
    return total


@njit(cache=True, nogil=True)
def _shift(begin, home, out, out_ranks, load, most, done):  # type: ignore[no-untyped-def]
    for t in range(out.shape[0]):
        for k in range(out.shape[1]):
            e, here = out[t, k], out_ranks[t, k]
            if e == NONE or load[here] <= most or begin[e + 1] - begin[e] == 1:
                continue
            there = _roomiest(home[begin[e] : begin[e + 1]], load)
            if load[there] < most:
                load[here] -= 1
                load[there] += 1
                out_ranks[t, k] = there
                done[SHIFTED] += 1


@njit(cache=True, nogil=True)
def _has(row, e):  # type: ignore[no-untyped-def]
    for one in row:
        if one == e:
            return True
    return False


@njit(cache=True, nogil=True)
def _best(row, scores, begin, home, load, count, most, rule):  # type: ignore[no-untyped-def]
    """The expert that gets an assignment and its rank, `NONE` where none has room."""
    found, at = NONE, NONE
    for e in range(len(count)):
        better = scores[e] > -np.inf
        if better and found != NONE:
            better = scores[e] > scores[found] if rule == NEXT else count[e] <= count[found]
        if not better:
            continue
        rank = home[begin[e]]
        if begin[e + 1] - begin[e] > 1:
            rank = _roomiest(home[begin[e] : begin[e + 1]], load)
        if load[rank] >= most or _has(row, e):
            continue
        if rule == NEXT or found == NONE or count[e] < count[found] or load[rank] < load[at]:
            found, at = e, rank
    return found, at


@njit(cache=True, nogil=True)
def _overflow(gates, out, out_ranks, load, most):  # type: ignore[no-untyped-def]
    """Numbers (t · K + k) of assignments on ranks over the cap, lowest gate first."""
    top_k = out.shape[1]
    places, key = np.empty(out.size, np.int64), np.empty(out.size, np.float32)
    n = 0
    for t in range(out.shape[0]):
        for k in range(top_k):
            if out[t, k] != NONE and load[out_ranks[t, k]] > most:
                places[n], key[n] = t * top_k + k, gates[t, k]
                n += 1
    return places[:n][np.argsort(key[:n], kind="mergesort")]


@njit(cache=True, nogil=True)
def _leave(gates, scores, begin, home, out, out_ranks, load, count, most, rule, done):  # type: ignore[no-untyped-def]
    over = np.maximum(load - most, 0)
    top_k = out.shape[1]
    for place in _overflow(gates, out, out_ranks, load, most):
        t, k = place // top_k, place % top_k
        here, e = out_ranks[t, k], out[t, k]
        if over[here] == 0:
            continue
        over[here] -= 1
        to, rank = NONE, NONE
        if rule != DROP:
            to, rank = _best(out[t], scores[t], begin, home, load, count, most, rule)
            if to == NONE:
                done[STUCK] += 1
                continue
            load[rank] += 1
            count[to] += 1
        load[here] -= 1
        count[e] -= 1
        out[t, k], out_ranks[t, k] = to, rank
        done[DROPPED if rule == DROP else MOVED] += 1


@njit(cache=True, nogil=True)
def reroute_overflow(  # type: ignore[no-untyped-def]
    experts, ranks, gates, scores, start, replica_start, replica_rank, n_ranks, cap, rule, out, out_ranks, done
):  # fmt: skip
    load, count = np.empty(n_ranks, np.int64), np.empty(scores.shape[2], np.int64)
    for step in range(len(start) - 1):
        a, b = start[step], start[step + 1]
        for row in range(experts.shape[1]):
            load[:] = 0
            count[:] = 0
            done[step, row] = 0
            begin, home = replica_start[row], replica_rank[row]
            chosen, rank = out[a:b, row], out_ranks[a:b, row]
            total = _deal(experts[a:b, row], ranks[a:b, row], begin, home, chosen, rank, load, count)
            most = np.int64(np.ceil(cap * total / n_ranks - ROUNDING))
            if load.max() > most:
                _shift(begin, home, chosen, rank, load, most, done[step, row])
                _leave(
                    gates[a:b, row], scores[a:b, row], begin, home, chosen, rank, load, count, most, rule,
                    done[step, row],
                )  # fmt: skip
