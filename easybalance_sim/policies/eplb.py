"""Greedy expert-parallel load balancing over all ranks: replicate the hot experts, pack heaviest first."""

from __future__ import annotations

from easybalance_sim import kernels
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem


def place(problem: Problem) -> Plan:
    """The global policy of DeepSeek's EPLB (github.com/deepseek-ai/EPLB) on the forecast; uses every slot.

    A slow rank gets less: replicas go where load / speed is lowest.
    """
    slots = problem.topology.slots_per_rank
    return Plan(
        expert_of_slot=kernels.load().greedy(problem.forecast, slots, problem.topology.speed),
        slots_per_rank=slots,
        experts=problem.experts,
        policy="eplb",
    )
