"""Which slot computes how many of an expert's tokens, and what is moved from a full rank: on counts of single steps."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.layer_queue.micro_batches import dealt_evenly

SWEEPS = 3
"""Over all replicated experts; more changes nothing that is seen in a step's seconds."""


def least_loaded(counts: Int32Array, plan: Plan) -> Int32Array:
    """int32[S, L, P] assignments of slots when every step deals a replicated expert's tokens so that its ranks end as
    level as they can, with the whole step's counts known. counts: int32[S, L, E]."""
    out = dealt_evenly(counts, plan).astype(np.int64)
    for layer in range(plan.layers):
        _level(counts[:, layer].astype(np.int64), plan, layer, out[:, layer])
    return frozen(out, np.int32)


def _level(counts: IntArray, plan: Plan, layer: int, out: IntArray) -> None:
    """Level one layer's int64[S, P] in place, the busiest experts first."""
    load = np.add.reduceat(out, plan.slot_start[:-1], axis=1)
    several = np.flatnonzero(plan.replicas[layer] > 1)
    several = several[np.argsort(-counts[:, several].sum(axis=0), kind="stable")]
    slots_of = [_apart(plan, layer, expert, out) for expert in several.tolist()]
    for _ in range(SWEEPS):
        for expert, slots in zip(several.tolist(), slots_of, strict=True):
            ranks = plan.rank_of_slot[slots]
            beside = load[:, ranks] - out[:, slots]
            out[:, slots] = dealt(counts[:, expert], _levelled(beside, counts[:, expert]))
            load[:, ranks] = beside + out[:, slots]


def _apart(plan: Plan, layer: int, expert: int, out: IntArray) -> IntArray:
    """int64[N] slots of an expert on different ranks. A second one on a rank would share nothing: what it has of
    int64[S, P] goes to the first."""
    own = np.flatnonzero(plan.expert_of_slot[layer] == expert)
    first = np.unique(plan.rank_of_slot[own], return_index=True)[1]
    together = np.add.reduceat(out[:, own], first, axis=1)
    out[:, own] = 0
    out[:, own[first]] = together
    return own[first]


def _levelled(load: IntArray, amount: IntArray) -> FloatArray:
    """float64[S, N] what of float64[S] fills vessels that hold [S, N] so that the lowest are level."""
    order = np.argsort(load, axis=1, kind="stable")
    rising = np.take_along_axis(load, order, axis=1).astype(np.float64)
    within = np.arange(1, load.shape[1] + 1)
    level = (rising.cumsum(axis=1) + amount[:, None]) / within
    # The level over the n lowest is the right one for the last n that it still covers.
    covers = (level > rising).cumsum(axis=1).argmax(axis=1)
    height = np.take_along_axis(level, covers[:, None], axis=1)
    return np.maximum(height - load, 0.0)


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
