"""Search for the placement whose busiest rank stays low over many sample windows, not only on their average.

Annealing on sum over windows and ranks of load^8 (see `kernels.reference_search`), every layer on its own, from the
greedy placement. Windows: the recorded ones and, in equal number, the same requests re-batched in topic order.
"""

from __future__ import annotations

import time
from dataclasses import replace

from easybalance_sim import kernels
from easybalance_sim.load.headroom import NOISE, excess_std
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem
from easybalance_sim.policies._search import FEWEST_WINDOWS, from_start
from easybalance_sim.policies._settle import averaged, is_small, settled

NAME = "window_search"


def place(problem: Problem) -> Plan:
    """The best placement found; deterministic per seed unless a time budget cuts it short.

    `NotApplicable` with fewer than 8 windows (nothing can be promised) and when windows differ by chance only (the
    average's placement cannot be beaten), unless there are so few slots that greedy may miss the best one for the
    average.
    """
    if len(problem.windows) < FEWEST_WINDOWS:
        raise NotApplicable(f"{len(problem.windows)} windows, a search needs at least {FEWEST_WINDOWS}")
    slots = problem.topology.slots_per_rank
    start = Plan(
        expert_of_slot=kernels.load().greedy(problem.forecast, slots, problem.topology.speed),
        slots_per_rank=slots,
        experts=problem.experts,
        policy=NAME,
    )
    beyond = excess_std(problem.windows, start.expert_of_slot, start.rank_of_slot, problem.top_k)
    if is_small(problem):
        return _exactly(problem, start, chance_only=beyond < NOISE)
    if beyond < NOISE:
        raise NotApplicable(
            f"batch noise only: rank loads vary by {beyond:.3f} beyond chance, {NOISE} is worth a search"
        )
    return from_start(problem, start)


def _exactly(problem: Problem, start: Plan, *, chance_only: bool) -> Plan:
    """The search of a small problem: half the time for the walk that the others take too, the rest for settling."""
    if chance_only:
        return settled(averaged(problem), start, problem.effort.budget_s or None)
    budget, begin = problem.effort.budget_s, time.perf_counter()
    plan = from_start(replace(problem, effort=replace(problem.effort, budget_s=budget / 2)), start)
    return settled(problem, plan, budget - (time.perf_counter() - begin) if budget else None)
