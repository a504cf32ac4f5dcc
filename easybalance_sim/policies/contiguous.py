"""Experts in order, one replica each: what an engine does without a plan."""

from __future__ import annotations

import numpy as np

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem
from easybalance_sim.policies._slots import zero_redundancy_slots


def place(problem: Problem) -> Plan:
    """Expert e in slot e of every layer; ranks use E//R or E//R + 1 slots where they have them."""
    return Plan(
        expert_of_slot=np.tile(np.arange(problem.experts, dtype=np.int32), (problem.layers, 1)),
        slots_per_rank=zero_redundancy_slots(problem),
        experts=problem.experts,
        policy="contiguous",
    )
