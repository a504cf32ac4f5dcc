"""Experts in order: what an engine does without a plan."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import Int32Array, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem
from easybalance_sim.policies._slots import zero_redundancy_slots


def place(problem: Problem) -> Plan:
    """Expert e in slot e of every layer; ranks use E//R or E//R + 1 slots where they have them.

    With fewer experts than ranks every rank has one slot, and slot i holds expert i mod E: the smallest placement that
    gives every rank work, and the map that vLLM starts with.
    """
    ranks = problem.topology.ranks
    slots = np.ones(ranks, np.int64) if problem.experts < ranks else zero_redundancy_slots(problem)
    return Plan(
        expert_of_slot=_in_turn(slots, problem),
        slots_per_rank=slots,
        experts=problem.experts,
        policy="contiguous",
    )


def _in_turn(slots: IntArray, problem: Problem) -> Int32Array:
    return frozen(np.tile(np.arange(int(slots.sum())) % problem.experts, (problem.layers, 1)), np.int32)
