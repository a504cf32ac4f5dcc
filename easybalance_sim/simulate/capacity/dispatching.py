"""What is moved from a full rank, and what slots take when all ranks are alike: on counts of single steps."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen
from easybalance_sim.plan.plan import Plan


def dealt(amount: IntArray, share: FloatArray) -> IntArray:
    """int64[…, N] whole parts of int64[…], in proportion to float64[…, N] ≥ 0 (to the first where all are 0)."""
    total = share.sum(axis=-1, keepdims=True)
    first = np.arange(share.shape[-1]) == 0
    ends = np.cumsum(np.where(total > 0, share / np.where(total > 0, total, 1.0), first), axis=-1)
    ends[..., -1] = 1.0
    upto = np.floor(ends * amount[..., None] + 1e-9).astype(np.int64)
    parts: IntArray = np.diff(upto, axis=-1, prepend=0)
    return parts


def capped(slot_tokens: Int32Array, plan: Plan, cap: float) -> tuple[Int32Array, float]:
    """int32[S, L, P] with no rank above cap · mean (rounded up), and the share of assignments that had to move.

    What is too much leaves a rank's slots in proportion to their tokens and goes to ranks with room, in proportion to
    it; which token goes is the router's choice and does not matter for the load.
    """
    tokens = slot_tokens.astype(np.int64)
    load = np.add.reduceat(tokens, plan.slot_start[:-1], axis=2)
    most = np.ceil(cap * load.sum(axis=2, keepdims=True) / plan.ranks).astype(np.int64)
    over = np.maximum(load - most, 0)
    moved = over.sum(axis=2)
    room = np.maximum(most - load, 0)
    change = dealt(moved, room.astype(np.float64)) - over
    for rank in range(plan.ranks):
        mine = slice(int(plan.slot_start[rank]), int(plan.slot_start[rank + 1]))
        own = tokens[:, :, mine]
        share = np.where(own.sum(axis=2, keepdims=True) > 0, own, 1).astype(np.float64)
        tokens[:, :, mine] = dealt(load[:, :, rank] + change[:, :, rank], share)
    return frozen(tokens, np.int32), float(moved.sum() / max(1, load.sum()))


def even(counts: Int32Array, plan: Plan) -> Int32Array:
    """int32[S, L, P] the same assignments dealt evenly over all slots: what no balancing can pass."""
    total = counts.sum(axis=2, dtype=np.int64)
    return frozen(dealt(total, np.ones((*total.shape, plan.slots))), np.int32)
