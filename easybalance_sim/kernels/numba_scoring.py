"""Rank imbalance of many plans, compiled; specification and argument list in `reference_scoring`.

Tokens of a few windows are laid out once per layer as [E, BLOCK], which stays in a core's own cache while every plan is
scored on them: a slot then adds one short row of neighbouring windows to its rank.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.threads import on_threads

BLOCK = 64
"""Windows side by side; a power of two that fills whole vector registers."""
LINE, PER_LINE = 64, 8
"""Bytes and numbers of a cache line, and of the widest registers: rows that begin at one are read 1.4 times faster."""


@bare_njit(error_model="numpy", inline="always")
def _lay_out(tokens, layer, first, rows, total):  # type: ignore[no-untyped-def]
    """rows[E, BLOCK] tokens of the windows from `first`, total[BLOCK] their sums over experts; zeros past the last."""
    rows[:] = 0
    total[:] = 0
    windows = min(BLOCK, len(tokens) - first)
    for begin in range(0, windows, PER_LINE):
        for e in range(len(rows)):
            for w in range(begin, min(begin + PER_LINE, windows)):
                n = tokens[first + w, layer, e]
                rows[e, w] = n
                total[w] += n


@bare_njit(error_model="numpy", inline="always")
def _share_out(slots, copies, share):  # type: ignore[no-untyped-def]
    """share[P] of its expert's tokens that each slot gets; copies: [E] room to work in."""
    for p in range(len(slots)):
        copies[slots[p]] = 0
    for p in range(len(slots)):
        copies[slots[p]] += 1
    for p in range(len(slots)):
        share[p] = 1.0 / copies[slots[p]]


@bare_njit(error_model="numpy", inline="always")
def _busiest(slots, share, slot_start, pace, rows, load, worst):  # type: ignore[no-untyped-def]
    """worst[BLOCK] largest load · pace of a rank; three slots at a time, so that loads are fetched less often."""
    worst[:] = 0
    for r in range(len(pace)):
        load[:] = 0
        p, last = slot_start[r], slot_start[r + 1]
        while p + 2 < last:
            one, two, three = rows[slots[p]], rows[slots[p + 1]], rows[slots[p + 2]]
            a, b, c = share[p], share[p + 1], share[p + 2]
            for w in range(BLOCK):
                load[w] = load[w] + one[w] * a + two[w] * b + three[w] * c
            p += 3
        while p < last:
            one, a = rows[slots[p]], share[p]
            for w in range(BLOCK):
                load[w] += one[w] * a
            p += 1
        for w in range(BLOCK):
            worst[w] = max(worst[w], load[w] * pace[r])


@bare_njit(error_model="numpy")
def _score_layers(  # type: ignore[no-untyped-def]
    expert_of_slot, slot_start, tokens, pace, first, last, rows, vectors, copies, share, out
):
    """Layers `first` to `last`. rows: [E, BLOCK], vectors: [3, BLOCK], copies: [E], share: [P]: room to work in."""
    total, load, worst = vectors[0], vectors[1], vectors[2]
    for layer in range(first, last):
        for begin in range(0, len(tokens), BLOCK):
            _lay_out(tokens, layer, begin, rows, total)
            for c in range(len(expert_of_slot)):
                slots, ratio = expert_of_slot[c, layer], out[c, layer]
                _share_out(slots, copies, share)
                _busiest(slots, share, slot_start, pace, rows, load, worst)
                for w in range(min(BLOCK, len(tokens) - begin)):
                    ratio[begin + w] = worst[w] / total[w]


def score_plans(expert_of_slot, slot_start, tokens, pace, out):  # type: ignore[no-untyped-def]
    """Shares of the layers on threads: the compiled loop holds no lock."""
    layers, experts = tokens.shape[1:]
    parts = max(min(len(os.sched_getaffinity(0)), layers), 1)

    def score(part: int) -> None:
        _score_layers(
            expert_of_slot, slot_start, tokens, pace, layers * part // parts, layers * (part + 1) // parts,
            _aligned(experts, BLOCK), _aligned(3, BLOCK), np.empty(experts, np.int32),
            np.empty(expert_of_slot.shape[2]), out,
        )  # fmt: skip

    for _ in on_threads(score, parts):
        pass


def _aligned(rows: int, columns: int) -> npt.NDArray[np.float64]:
    """float64[rows, columns] that begins at a cache line."""
    size = 8 * rows * columns
    room = np.empty(size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + size].view(np.float64).reshape(rows, columns)
