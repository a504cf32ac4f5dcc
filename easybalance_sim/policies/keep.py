"""The plan in force, unchanged: what a new plan has to beat."""

from __future__ import annotations

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem


def place(problem: Problem) -> Plan:
    """The current plan; `NotApplicable` without one or when it was made for another model or cluster."""
    plan = problem.current
    if plan is None:
        raise NotApplicable("no plan is in force")
    wanted = (problem.layers, problem.experts, problem.topology.ranks)
    got = (plan.layers, plan.experts, plan.ranks)
    if got != wanted:
        raise NotApplicable(f"the plan in force has (layers, experts, ranks) = {got}, the trace and cluster {wanted}")
    if (plan.slots_per_rank > problem.topology.slots_per_rank).any():
        raise NotApplicable("the plan in force uses more slots than a rank has")
    return plan
