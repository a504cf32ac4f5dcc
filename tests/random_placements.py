"""Random placements without an expert twice on a rank, for migrations."""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray
from easybalance_sim.plan.plan import Plan


def random_slots(rng: Any, ranks: int, experts: int, most: int = 6) -> IntArray:
    """int64[R] slots per rank, enough for all experts together, at most E each."""
    slots = rng.integers(1, min(experts, most) + 1, ranks)
    while slots.sum() < experts:
        slots[rng.choice(np.flatnonzero(slots < experts))] += 1
    return np.asarray(slots, np.int64)


def random_held(rng: Any, slots: IntArray, experts: int) -> BoolArray:
    """bool[R, E]: every expert somewhere, every slot filled, none twice on a rank."""
    held = np.zeros((len(slots), experts), np.bool_)
    left = slots.copy()
    for expert in rng.permutation(experts):
        rank = rng.choice(np.flatnonzero(left == left.max()))
        held[rank, expert] = True
        left[rank] -= 1
    for rank, free in enumerate(left):
        held[rank, rng.choice(np.flatnonzero(~held[rank]), free, replace=False)] = True
    return held


def random_plan(rng: Any, slots: IntArray, experts: int, layers: int) -> Plan:
    """A plan whose slots stand in random order on each rank."""
    rows = []
    for _ in range(layers):
        held = random_held(rng, slots, experts)
        rows.append(np.concatenate([rng.permutation(np.flatnonzero(row)) for row in held]))
    return Plan(expert_of_slot=np.array(rows), slots_per_rank=slots, experts=experts, policy="random")
