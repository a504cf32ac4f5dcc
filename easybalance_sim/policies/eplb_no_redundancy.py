"""Greedy expert-parallel load balancing without replicas: what moving experts alone can reach."""

from __future__ import annotations

from easybalance_sim import kernels
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem
from easybalance_sim.policies._slots import zero_redundancy_slots


def place(problem: Problem) -> Plan:
    """One replica of each expert, heaviest first to the least loaded rank; E//R or E//R + 1 slots per rank."""
    slots = zero_redundancy_slots(problem)
    return Plan(
        expert_of_slot=kernels.load().greedy(problem.forecast, slots, problem.topology.speed),
        slots_per_rank=slots,
        experts=problem.experts,
        policy="eplb_no_redundancy",
    )
