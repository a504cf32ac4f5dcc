"""What is left of the plan in force after a loss of ranks, made whole again with the fewest moves."""

from __future__ import annotations

from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem
from easybalance_sim.policies._current import current_plan


def place(problem: Problem) -> Plan:
    """The repaired plan, see `plan.survivors`; `NotApplicable` when no rank was lost."""
    if problem.held is None:
        raise NotApplicable("no rank was lost", plain=True)
    return current_plan(problem)
