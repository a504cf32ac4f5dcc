"""The plan in force, checked against the problem."""

from __future__ import annotations

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem


def current_plan(problem: Problem) -> Plan:
    """The current plan, repaired when ranks were lost; `NotApplicable` without one or when it was made for another
    model or cluster."""
    plan = problem.current
    if plan is None:
        raise NotApplicable("no plan is in force", plain=True)
    wanted = (problem.layers, problem.experts, problem.topology.ranks)
    got = (plan.layers, plan.experts, plan.ranks)
    if got != wanted:
        raise NotApplicable(f"the plan in force has (layers, experts, ranks) = {got}, the trace and cluster {wanted}")
    if (plan.slots_per_rank > problem.topology.slots_per_rank).any():
        raise NotApplicable("the plan in force uses more slots than a rank has")
    return plan
