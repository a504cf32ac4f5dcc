"""Experts dealt to the ranks like cards, one replica each."""

from __future__ import annotations

import numpy as np

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem
from easybalance_sim.policies._slots import zero_redundancy_slots


def place(problem: Problem) -> Plan:
    """Expert e on rank e mod R; a rank without a free slot is passed over."""
    used = zero_redundancy_slots(problem)
    rank_of_slot = np.repeat(np.arange(len(used)), used)
    turn = np.arange(problem.experts) - np.repeat(np.cumsum(used) - used, used)
    # Slot number `turn` of every rank is dealt in round `turn`; ranks in order within a round.
    expert_of_slot = np.empty(problem.experts, np.int32)
    expert_of_slot[np.lexsort((rank_of_slot, turn))] = np.arange(problem.experts)
    return Plan(
        expert_of_slot=np.tile(expert_of_slot, (problem.layers, 1)),
        slots_per_rank=used,
        experts=problem.experts,
        policy="round_robin",
    )
