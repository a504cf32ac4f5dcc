"""Search from the plan in force, with a price on every expert that would have to be fetched."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import BoolArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots
from easybalance_sim.policies import NotApplicable, Problem
from easybalance_sim.policies._current import current_plan
from easybalance_sim.policies._search import FEWEST_WINDOWS, from_start

MOVE_PRICE = 0.006
"""In units of a window's objective, where a balanced rank counts 1: on a 10 % drift of 256 experts over 32 × 9 slots it
moves 13 % of the slots and leaves 1.1 % imbalance, where a fresh greedy plan moves 95 % and leaves 0.5 %."""

COLD_UNIT = 0.75
"""A walk that is heated first wanders off and does not find its way back to the plan in force."""


def place(problem: Problem) -> Plan:
    """The current plan, improved where it pays for the moves; uses the slots that the current plan uses.

    `NotApplicable` without a plan in force that fits, when that has an expert twice on a rank, and with fewer than 8
    windows unless the user limits the moves.
    """
    current = current_plan(problem)
    held = _held(current)
    if int(held.sum()) < current.expert_of_slot.size:
        raise NotApplicable("the plan in force has an expert twice on a rank")
    fewest = FEWEST_WINDOWS if problem.effort.max_moves is None else 1
    if len(problem.windows) < fewest:
        raise NotApplicable(f"{len(problem.windows)} windows, a search needs at least {fewest}")
    free = held if problem.held is None else problem.held
    return keep_slots(
        current, from_start(problem, current, free, problem.effort.move_price or MOVE_PRICE, unit=COLD_UNIT)
    )


def _held(plan: Plan) -> BoolArray:
    """bool[L, R, E] experts on each rank."""
    held = np.zeros((plan.layers, plan.ranks, plan.experts), np.bool_)
    held[np.arange(plan.layers)[:, None], plan.rank_of_slot[None, :], plan.expert_of_slot] = True
    return held
