"""Choosing experts again from recorded scores, compiled; specification in `reference_routing`.

One step of a closed loop is some hundred tokens of all layers. The list of the best starts with the recorded experts,
of which nearly all stay: so hardly any other expert gets past the worst of the list, and branches are foreseen.
Rows are indexed, not cut out: a view per row costs more than the work on it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NONE = -1
CHANGED, GATE_REPLACED, SCORE_LOST, TOP_LOST, DROPPED, GATE, SCORE, ASSIGNMENTS = range(8)
MISSING = np.float32(-np.inf)
U = np.uint64


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _group_worths(key, worth):  # type: ignore[no-untyped-def]
    """Sum of the best two of each group, of the best one where there is one only."""
    size = U(len(key)) // U(len(worth))
    e = U(0)
    for g in range(len(worth)):
        best, second = MISSING, MISSING
        for _ in range(size):
            x = key[e]
            low = best if x > best else x
            second = low if low > second else second
            best = x if x > best else best
            e += U(1)
        worth[U(g)] = best if second == MISSING else best + second


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _keep_groups(key, worth, kept, topk_group):  # type: ignore[no-untyped-def]
    """A group stays when fewer than topk_group others go before it."""
    _group_worths(key, worth)
    for g in range(len(worth)):
        mine, before = worth[U(g)], 0
        for other in range(len(worth)):
            before += (worth[U(other)] > mine) | ((worth[U(other)] == mine) & (other < g))
        kept[U(g)] = (before < topk_group) & (mine > MISSING)


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _insert(value, e, first, found, ids, best):  # type: ignore[no-untyped-def]
    """Puts expert e in its place of the sorted ids first..found-1, the last of which falls out of a full list."""
    at = found if found < len(ids) else len(ids) - 1
    while at > first and (value > best[U(at - 1)] or (value == best[U(at - 1)] and e < ids[U(at - 1)])):
        best[U(at)] = best[U(at - 1)]
        ids[U(at)] = ids[U(at - 1)]
        at -= 1
    best[U(at)] = value
    ids[U(at)] = e


@njit(cache=True, nogil=True, error_model="numpy")
def _take_best(key, kept, inside, first, found, ids, best):  # type: ignore[no-untyped-def]
    """Adds the best experts of kept groups (or of the others) to ids first..found-1; returns the new `found`."""
    size, last = len(key) // len(kept), U(len(ids) - 1)
    for g in range(len(kept)):
        if kept[U(g)] != inside:
            continue
        for e in range(g * size, (g + 1) * size):
            value = key[U(e)]
            if value == MISSING:
                continue
            if found < len(ids):
                _insert(value, e, first, found, ids, best)
                found += 1
            elif first < found and (value > best[last] or (value == best[last] and e < ids[last])):
                _insert(value, e, first, found, ids, best)
    return found


@njit(cache=True, nogil=True, inline="always", error_model="numpy")
def _choose(key, recorded, t, layer, group_of, worth, kept, topk_group, ids, best):  # type: ignore[no-untyped-def]
    """The K best of key[E], which is used up."""
    kept[U(0)] = True
    if len(worth) > 1:
        _keep_groups(key, worth, kept, topk_group)
    found = 0
    for k in range(len(ids)):
        e = recorded[t, layer, U(k)]
        value = key[U(e)]
        if kept[U(group_of[U(e)])] and value > MISSING:
            _insert(value, e, 0, found, ids, best)
            found += 1
            key[U(e)] = MISSING
    found = _take_best(key, kept, True, 0, found, ids, best)
    if found < len(ids):
        found = _take_best(key, kept, False, found, found, ids, best)
    for k in range(found, len(ids)):
        ids[U(k)] = NONE


@njit(cache=True, nogil=True, error_model="numpy")
def route(  # type: ignore[no-untyped-def]
    scores, recorded, head_start, offset, factor, allowed, groups, topk_group, out
):  # fmt: skip
    tokens, layers, experts = scores.shape
    key, worth, kept = np.empty(experts, np.float32), np.empty(groups, np.float32), np.empty(groups, np.bool_)
    ids, best = np.empty(out.shape[2], np.int32), np.empty(out.shape[2], np.float32)
    group_of = (np.arange(experts) // (experts // groups)).astype(np.int32)
    for token in range(tokens):
        t = U(token)
        for row in range(layers):
            layer = U(row)
            for e in range(experts):
                key[U(e)] = scores[t, layer, U(e)] * factor[layer, U(e)] - offset[layer, U(e)]
            for k in range(len(ids)):
                key[U(recorded[t, layer, U(k)])] += head_start[t, layer]
            for e in range(experts):
                key[U(e)] = key[U(e)] if allowed[layer, U(e)] else MISSING
            most = groups if head_start[t, layer] == np.inf else topk_group
            _choose(key, recorded, t, layer, group_of, worth, kept, most, ids, best)
            for k in range(len(ids)):
                out[t, layer, U(k)] = ids[U(k)]


@njit(cache=True, nogil=True, error_model="numpy")
def compare_routing(experts, recorded, scores, bias, gates, workload, out):  # type: ignore[no-untyped-def]
    tokens, layers, top_k = experts.shape
    for t in range(tokens):
        w = workload[t]
        for layer in range(layers):
            dropped, gone, top, top_gone = 0, 0, gates[t, layer, 0], False
            before, after = 0.0, 0.0
            for k in range(top_k):
                new, old, gate = experts[t, layer, k], recorded[t, layer, k], gates[t, layer, k]
                there = False
                for j in range(top_k):
                    there |= experts[t, layer, j] == old
                if k == 0 or gate > top:
                    top, top_gone = gate, not there
                out[w, layer, GATE] += gate
                out[w, layer, GATE_REPLACED] += 0.0 if there else gate
                gone += not there
                before += scores[t, layer, old] - bias[layer, old]
                if new == NONE:
                    dropped += 1
                else:
                    after += scores[t, layer, new] - bias[layer, new]
            out[w, layer, CHANGED] += gone - dropped
            out[w, layer, TOP_LOST] += top_gone
            out[w, layer, DROPPED] += dropped
            out[w, layer, ASSIGNMENTS] += top_k
            if dropped == 0 and before > 0 and after > -np.inf:
                out[w, layer, SCORE] += 1
                out[w, layer, SCORE_LOST] += 1 - after / before
