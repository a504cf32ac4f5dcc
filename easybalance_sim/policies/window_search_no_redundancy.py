"""The window search without replicas: what moving experts alone can reach on the tail, at no memory."""

from __future__ import annotations

from dataclasses import replace

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem, window_search
from easybalance_sim.policies._slots import zero_redundancy_slots


def place(problem: Problem) -> Plan:
    """One replica of each expert, E//R or E//R + 1 slots per rank.

    `NotApplicable` as `window_search`, and when the ranks have no more slots than that.
    """
    slots = zero_redundancy_slots(problem)
    if slots.sum() == problem.topology.slots:
        raise NotApplicable("no slot is redundant: window_search makes the same plan", plain=True)
    return window_search.place(replace(problem, topology=replace(problem.topology, slots_per_rank=slots)))
