"""The plan in force, unchanged: what a new plan has to beat."""

from __future__ import annotations

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem
from easybalance_sim.policies._current import current_plan


def place(problem: Problem) -> Plan:
    """The current plan; `NotApplicable` without one, when it was made for another model or cluster, and when ranks of
    it were lost."""
    if problem.held is not None:
        raise NotApplicable("ranks were lost: repair is what can be kept of the plan in force", plain=True)
    return current_plan(problem)
