"""Micro-batches that wait for ranks, compiled; specification in `reference_layer_queue`.

A lane has at most one part on a rank and few lanes run, so every queue is one row of flags: the next event and the best
claim are found by looking at all of them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from easybalance_sim.kernels.reference_layer_queue import CLOSING, FIFO, HEAT, PATH

NOBODY = -1


@njit(cache=True, nogil=True)
def _begin(m, now, service, delay, lane, batch, stage, ready, left, came, heat, heated, decay_s, start, finish):  # type: ignore[no-untyped-def]
    """Lane m begins its next stage; what it has finished is written down and the next micro-batch taken up."""
    ready[m] = np.inf
    b, stages = batch[m], service.shape[1]
    if stage[m] == stages or b == NOBODY:
        if b != NOBODY:
            finish[b] = now
        b += 1
        while b < len(lane) and lane[b] != m:
            b += 1
        batch[m], stage[m] = b, 0
        if b == len(lane):
            return
        start[b] = now
    g = stage[m]
    for r in range(service.shape[2]):
        if service[b, g, r] > 0:
            heat[r] = heat[r] * np.exp((heated[r] - now) / decay_s) + service[b, g, r]
            heated[r] = now
            came[r, m] = now
            left[m] += 1
    if left[m] == 0:
        ready[m] = now + delay[b, g]
        stage[m] += 1


@njit(cache=True, nogil=True)
def _chosen(r, now, came, batch, stage, left, hot, tail, heat, heated, decay_s, rule):  # type: ignore[no-untyped-def]
    """The lane whose part rank r takes up, NOBODY when none waits."""
    is_hot = False
    if rule == HEAT:
        total = 0.0
        for other in range(len(heat)):
            total += heat[other] * np.exp((heated[other] - now) / decay_s)
        is_hot = heat[r] * np.exp((heated[r] - now) / decay_s) > total / len(heat)
    best, lowest = NOBODY, 0.0
    for m in range(came.shape[1]):
        if came[r, m] < 0:
            continue
        claim = 0.0
        if rule == FIFO:
            claim = came[r, m]
        elif rule == HEAT:
            claim = hot[stage[m], r] if is_hot else -hot[stage[m], r]
        elif rule == PATH:
            claim = -tail[batch[m], stage[m]]
        elif rule == CLOSING:
            claim = np.float64(left[m])
        if best == NOBODY or claim < lowest or (claim == lowest and batch[m] < batch[best]):
            best, lowest = m, claim
    return best


@njit(cache=True, nogil=True)
def layer_queue(service, delay, lane, hot, tail, rule, decay_s):  # type: ignore[no-untyped-def]
    lanes, ranks = lane.max() + 1, service.shape[2]
    start, finish, busy = np.zeros(len(service)), np.zeros(len(service)), np.zeros(ranks)
    batch, stage, left = np.full(lanes, NOBODY), np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    ready, until, serves = np.zeros(lanes), np.full(ranks, np.inf), np.full(ranks, NOBODY)
    came, heat, heated = np.full((ranks, lanes), -1.0), np.zeros(ranks), np.zeros(ranks)
    while True:
        now = min(ready.min(), until.min())
        if now == np.inf:
            return start, finish, busy
        while min(ready.min(), until.min()) <= now:
            for r in range(ranks):
                if until[r] <= now:
                    m = serves[r]
                    until[r], serves[r] = np.inf, NOBODY
                    left[m] -= 1
                    if left[m] == 0:
                        ready[m] = now + delay[batch[m], stage[m]]
                        stage[m] += 1
            for m in range(lanes):
                if ready[m] <= now:
                    _begin(
                        m, now, service, delay, lane, batch, stage, ready, left, came, heat, heated, decay_s, start,
                        finish,
                    )  # fmt: skip
        for r in range(ranks):
            if until[r] == np.inf:
                m = _chosen(r, now, came, batch, stage, left, hot, tail, heat, heated, decay_s, rule)
                if m != NOBODY:
                    seconds = service[batch[m], stage[m], r]
                    came[r, m], until[r], serves[r] = -1.0, now + seconds, m
                    busy[r] += seconds
