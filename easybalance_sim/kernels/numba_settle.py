"""Small placements settled on their busiest rank, compiled; specification in `reference_settle`."""

from __future__ import annotations

import numpy as np
from numba import njit

from easybalance_sim.kernels.numba_search import _below, _next

HOT, COLD = 0.1, 1e-4


@njit(cache=True, nogil=True)
def _legal(slots, rank_of_slot, count):  # type: ignore[no-untyped-def]
    count[:] = 0
    for p in range(len(slots)):
        count[slots[p]] += 1
        q = p + 1
        while q < len(slots) and rank_of_slot[q] == rank_of_slot[p]:
            if slots[q] == slots[p]:
                return False
            q += 1
    return count.min() > 0


@njit(cache=True, nogil=True)
def _value(slots, rank_of_slot, cost, weight, pace, count, load):  # type: ignore[no-untyped-def]
    load[:] = 0
    for p in range(len(slots)):
        r, e = rank_of_slot[p], slots[p]
        for t in range(len(weight)):
            load[r, t] += cost[e, count[e] - 1, t]
    total = 0.0
    for t in range(len(weight)):
        worst = 0.0
        for r in range(len(pace)):
            worst = max(worst, load[r, t] * pace[r])
        total += weight[t] * worst
    return total


@njit(cache=True, nogil=True)
def _propose(slots, trial, experts, random):  # type: ignore[no-untyped-def]
    trial[:] = slots
    kind = _below(random, 10)
    if kind >= 4:
        p = _below(random, len(slots))
        trial[p] = _below(random, experts)
    if kind < 4 or kind >= 8:
        p, q = _below(random, len(slots)), _below(random, len(slots))
        trial[p], trial[q] = trial[q], trial[p]


@njit(cache=True, nogil=True)
def settle(start, rank_of_slot, cost, weight, pace, walks, proposals, seed, out):  # type: ignore[no-untyped-def]
    random = np.array([np.uint64(np.int64(seed) * 2654435769 + 88172645463325252)])
    count, load = np.zeros(len(cost), np.int64), np.empty((len(pace), len(weight)))
    slots, trial = start.copy(), start.copy()
    _legal(start, rank_of_slot, count)
    first = _value(start, rank_of_slot, cost, weight, pace, count, load)
    lowest, cooling = first, (COLD / HOT) ** (1.0 / proposals)
    out[:] = start
    for _ in range(walks):
        slots[:] = start
        value, temperature = first, HOT * first
        for _ in range(proposals):
            temperature *= cooling
            _propose(slots, trial, len(cost), random)
            if not _legal(trial, rank_of_slot, count):
                continue
            new = _value(trial, rank_of_slot, cost, weight, pace, count, load)
            delta = new - value
            if delta > 0 and np.float64(_next(random)) * 2.3283064365386963e-10 >= np.exp(-delta / temperature):
                continue
            slots[:], value = trial, new
            if value < lowest * (1 - 1e-9):
                lowest, out[:] = value, slots
    return lowest
