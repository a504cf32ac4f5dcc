"""A GPU cache of experts, compiled; specification in `reference_expert_cache`.

All sizes at once: going down the stack, what a cache of C + 1 keeps beyond one of C is the best of what was asked for
or already came by and is not kept yet. A heap holds these; below the deepest item asked for nothing changes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from easybalance_sim.kernels.reference_expert_cache import AHEAD, HIT, HIT_TOKENS, LATE, MISS, USED_AHEAD

NEVER, NOWHERE = -2, -3


@njit(cache=True, nogil=True, inline="always")
def _better(one, other, value):  # type: ignore[no-untyped-def]
    return value[one] > value[other] or (value[one] == value[other] and one < other)


@njit(cache=True, nogil=True)
def _sift(heap, n, at, value):  # type: ignore[no-untyped-def]
    """Moves heap[at] down until both below are worse."""
    moved = heap[at]
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        if below + 1 < n and _better(heap[below + 1], heap[below], value):
            below += 1
        if not _better(heap[below], moved, value):
            break
        heap[at] = heap[below]
        at = below
    heap[at] = moved


@njit(cache=True, nogil=True)
def stack_depths(start, item, priority, group, stack, length, value):  # type: ignore[no-untyped-def]
    depth, found = np.zeros(len(item), np.int32), np.full(len(value), -1, np.int32)
    heap = np.empty(len(value), np.int32)
    for p in range(len(start) - 1):
        row, n = stack[group[p % len(group)]], 0
        for a in range(start[p], start[p + 1]):
            value[item[a]], found[item[a]] = priority[a], 0
            heap[n] = item[a]
            n += 1
        for at in range(n // 2 - 1, -1, -1):
            _sift(heap, n, at, value)
        size, held = 0, length[group[p % len(group)]]
        while n > 0:
            best = heap[0]
            if size < held and found[row[size]] < 0:
                old = row[size]
                if not _better(old, best, value):
                    row[size], heap[0] = best, old
                    _sift(heap, n, 0, value)
            else:
                if size < held:
                    found[row[size]] = size + 1
                row[size] = best
                n -= 1
                heap[0] = heap[n]
                _sift(heap, n, 0, value)
            size += 1
        length[group[p % len(group)]] = max(size, held)
        for a in range(start[p], start[p + 1]):
            depth[a] = found[item[a]]
            found[item[a]] = -1
    return depth


@njit(cache=True, nogil=True)
def _place(one, cache, victim, members, count, place):  # type: ignore[no-untyped-def]
    """Puts an item where `victim` is, or into a free place when that is NEVER."""
    if victim == NEVER:
        place[one] = count[cache]
        count[cache] += 1
    else:
        place[one], place[victim] = place[victim], -1
    members[cache, place[one]] = one


@njit(cache=True, nogil=True)
def _worst(members, n, until, barred, used, running, value):  # type: ignore[no-untyped-def]
    """The worst item not expected at `barred` or later nor used at `running`, NEVER when there is none."""
    worst = NEVER
    for at in range(n):
        one = members[at]
        if until[one] < barred and used[one] != running and (worst == NEVER or _better(worst, one, value)):
            worst = one
    return worst


@njit(cache=True, nogil=True)
def _ahead(  # type: ignore[no-untyped-def]
    p, now, queue, begun, capacity, group, link, want_start, want, ahead, members, count, place, until, used, fresh,
    ready, value,
):  # fmt: skip
    """Transfers that begin before layer p does; their number. queue: int64[3] next place, its position, end."""
    begin = 0
    while queue[0] < queue[2]:
        while want_start[queue[1] + 1] <= queue[0]:
            queue[1] += 1
        target = queue[1]
        begins = max(begun[-1], begun[target - ahead] + link[0])
        if begins >= now:
            break
        one, cache, victim = want[queue[0]], group[target % len(group)], NEVER
        queue[0] += 1
        if place[one] >= 0:
            continue
        if count[cache] >= capacity[cache]:
            victim = _worst(members[cache], count[cache], until, p, used, p - 1, value)
            if victim == NEVER:
                continue
        _place(one, cache, victim, members, count, place)
        begun[-1] = begins + link[1]
        ready[one], fresh[one] = begun[-1], True
        begin += 1
    queue[0] = max(queue[0], want_start[p + 1])
    return begin


@njit(cache=True, nogil=True)
def _take_in(p, now, missing, capacity, cache, members, count, place, until, used, fresh, ready, value):  # type: ignore[no-untyped-def]
    """What was loaded for layer p stays where it is better than what was there."""
    for one in missing:
        victim = NEVER
        if count[cache] >= capacity[cache]:
            victim = _worst(members[cache], count[cache], until, p + 1, used, NOWHERE, value)
            if victim == NEVER or not _better(one, victim, value):
                continue
        _place(one, cache, victim, members, count, place)
        ready[one], fresh[one] = now, False


@njit(cache=True, nogil=True)
def run_cache(  # type: ignore[no-untyped-def]
    start, item, tokens, priority, group, capacity, stack, length, value, compute, link, want_start, want, ahead
):
    positions, value = len(start) - 1, value.copy()
    counts, stall = np.zeros((positions, 6), np.int32), np.zeros(positions)
    members, count = np.empty((len(capacity), max(capacity.max(), 1)), np.int32), np.zeros(len(capacity), np.int64)
    place, until = np.full(len(value), -1, np.int64), np.full(len(value), -1, np.int64)
    used, ready, fresh = np.full(len(value), NEVER, np.int64), np.zeros(len(value)), np.zeros(len(value), np.bool_)
    missing = np.empty(len(value), np.int32)
    for cache in range(len(capacity)):
        for at in range(min(capacity[cache], length[cache])):
            _place(stack[cache, at], cache, NEVER, members, count, place)
    # The last entry is the moment from which the link is free.
    begun, queue, now = np.zeros(positions + 1), np.zeros(3, np.int64), 0.0
    queue[0] = want_start[min(ahead, positions)]
    for p in range(positions):
        begun[p], row = now, counts[p]
        if ahead > 0:
            row[AHEAD] = _ahead(
                p, now, queue, begun, capacity, group, link, want_start, want, ahead, members, count, place, until,
                used, fresh, ready, value,
            )  # fmt: skip
        there, misses = now, 0
        for a in range(start[p], start[p + 1]):
            one = item[a]
            value[one], used[one] = priority[a], p
            if place[one] < 0:
                missing[misses] = one
                misses += 1
                continue
            late = ready[one] > now
            there = max(there, ready[one])
            row[LATE if late else HIT] += 1
            row[HIT_TOKENS] += 0 if late else tokens[a]
            row[USED_AHEAD] += fresh[one]
            fresh[one] = False
        row[MISS] = misses
        if misses > 0:
            begun[-1] = max(begun[-1], now + link[0]) + misses * link[1]
            there = max(there, begun[-1])
            _take_in(
                p, now, missing[:misses], capacity, group[p % len(group)], members, count, place, until, used, fresh,
                ready, value,
            )  # fmt: skip
        if ahead > 0 and p + ahead < positions:
            queue[2] = want_start[p + ahead + 1]
            for at in range(want_start[p + ahead], queue[2]):
                until[want[at]] = p + ahead
        stall[p] = max(0.0, there - now)
        now += stall[p] + compute[p]
    return counts, stall
