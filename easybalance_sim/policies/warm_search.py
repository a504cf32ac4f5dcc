"""Search from the plan in force, with a price on every expert that would have to be fetched.

The price falls from pass to pass: the fetches that buy most come first, and every pass ends at a point of the front of
balance against moves. A walk at one low price fetches a third more for the same balance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import BoolArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots
from easybalance_sim.policies import NotApplicable, Problem
from easybalance_sim.policies._current import current_plan
from easybalance_sim.policies._search import FEWEST_WINDOWS, from_start, proposals_of

MOVE_PRICE = 0.0035
"""In units of a window's objective, where a balanced rank counts 1: on a 10 % drift of 256 experts over 32 × 9 slots it
moves 9 % of the slots and leaves 1.0 % imbalance, where a fresh greedy plan moves 95 % and leaves 0.5 %."""

DEAREST, FRONT = 32.0, (16.0, 4.0, 1.0, 0.25, 0.0625)
"""In prices asked for: the first pass, and the points of the front. Every pass is at half the price of the last one."""

PASS_SHARE = 5
"""A pass makes a fifth of a search's proposals: it starts close to where it ends."""

COLD_UNIT = 0.75
"""A walk that is heated first wanders off and does not find its way back to the plan in force."""


def place(problem: Problem) -> Plan:
    """The current plan, improved where it pays for the moves; uses the slots that the current plan uses.

    `NotApplicable` without a plan in force that fits, when that has an expert twice on a rank, and with fewer than 8
    windows unless the user limits the moves.
    """
    return _passes(problem, 1.0)[1.0]


def front(problem: Problem) -> list[Plan]:
    """Plans from few moves to many, named after their price; each within the user's limit on moves. At a price that
    the user sets there is one. Raises as `place`."""
    points = (1.0,) if problem.effort.move_price else FRONT
    found = _passes(problem, points[-1])
    price = problem.effort.move_price or MOVE_PRICE
    return [replace(found[point], policy=f"warm_search@{point * price:.2g}") for point in points]


def _passes(problem: Problem, cheapest: float) -> dict[float, Plan]:
    """The plan after each pass, by its share of the price asked for."""
    current = current_plan(problem)
    held = _held(current)
    if int(held.sum()) < current.expert_of_slot.size:
        raise NotApplicable("the plan in force has an expert twice on a rank")
    fewest = FEWEST_WINDOWS if problem.effort.max_moves is None else 1
    if len(problem.windows) < fewest:
        raise NotApplicable(f"{len(problem.windows)} windows, a search needs at least {fewest}")
    points = [DEAREST / 2**halving for halving in range(int(np.log2(DEAREST / cheapest)) + 1)]
    short, price = _shorter(problem, len(points)), problem.effort.move_price or MOVE_PRICE
    plans, plan = {}, current
    for point in points:
        plan = from_start(short, plan, held if problem.held is None else problem.held, point * price, unit=COLD_UNIT)
        plans[point] = keep_slots(current, plan)
    return plans


def _shorter(problem: Problem, passes: int) -> Problem:
    """The problem of one pass: its share of the proposals and of the time; progress counts all passes."""
    effort = replace(
        problem.effort,
        proposals=max(1, proposals_of(problem) // PASS_SHARE),
        budget_s=problem.effort.budget_s / passes,
    )
    advance = problem.progress("searching", Amount(passes * problem.layers, "layers"))
    return replace(problem, effort=effort, progress=lambda label, units: advance)


def _held(plan: Plan) -> BoolArray:
    """bool[L, R, E] experts on each rank."""
    held = np.zeros((plan.layers, plan.ranks, plan.experts), np.bool_)
    held[np.arange(plan.layers)[:, None], plan.rank_of_slot[None, :], plan.expert_of_slot] = True
    return held
