"""What travels in each layer when a plan changes, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.plan.migration import fetches, resident
from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Transfer:
    """moves: int64[L] experts that travel in each layer · layer_s: float64[L] until a layer's slowest rank has its own
    · staging_slots: experts that the fullest rank holds beside its slots while one layer changes."""

    moves: IntArray
    layer_s: FloatArray
    staging_slots: int


def transfer(
    old: Plan,
    new: Plan,
    *,
    expert_bytes: int,
    node_of_rank: IntArray,
    nvlink_bytes_per_s: float,
    network_bytes_per_s: float,
) -> Transfer:
    """Layers travel one after the other, as engines move them; within a layer ranks receive side by side.

    node_of_rank: int64[R] · the bandwidths are what one rank can receive, as in `plan.migration`, whose total for all
    layers is never more: there a rank that is done with a layer does not wait for the others.
    """
    near, far = fetches(old, new, node_of_rank)
    seconds = near * (expert_bytes / nvlink_bytes_per_s) + far * (expert_bytes / network_bytes_per_s)
    moving = near | far
    ranks = new.slot_start[:-1]
    return Transfer(
        moves=moving.sum(axis=1),
        layer_s=np.add.reduceat(seconds, ranks, axis=1).max(axis=1),
        staging_slots=int(np.add.reduceat(moving, ranks, axis=1, dtype=np.int64).max()),
    )


def takes_back(before: Plan, plan: Plan, candidate: Plan) -> bool:
    """Whether most of what a change fetches lay on its rank before the last change: two plans that take turns."""
    moved = resident(candidate) & ~resident(plan)
    back = moved & resident(before)
    return bool(moved.any()) and int(back.sum()) * 2 > int(moved.sum())
