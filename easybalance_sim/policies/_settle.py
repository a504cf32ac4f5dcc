"""Where a placement has few slots, its busiest rank itself is searched, from many starts."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem
from easybalance_sim.policies._search import Samples, scaled

FEW_SLOTS = 24
WALKS, PROPOSALS = 8, 20_000
WORK, WORK_PER_S = 2e9, 2e8
"""Of all layers, in slots times windows looked at: about two seconds, and what is surely done in one."""


def is_small(problem: Problem) -> bool:
    """Few slots, and more than one way to use them."""
    return problem.topology.ranks > 1 and int(problem.topology.slots_per_rank.sum()) <= FEW_SLOTS


def averaged(problem: Problem) -> Problem:
    """The problem with all its windows taken together."""
    steps = problem.window_steps * len(problem.windows)
    return replace(problem, windows=problem.windows.sum(axis=0)[None], finer=None, rebatched=None, window_steps=steps)


def settled(problem: Problem, plan: Plan, seconds: float | None = None) -> Plan:
    """The plan, or one whose busiest rank is lower on the mean over the sample windows. seconds: left, None = any."""
    samples, speed = scaled(problem, plan), problem.topology.speed
    windows, weight = _distinct(samples)
    size = plan.layers * WALKS * plan.expert_of_slot.shape[1] * len(weight)
    work = WORK if seconds is None else min(WORK, max(0.0, seconds) * WORK_PER_S)
    proposals = min(PROPOSALS, problem.effort.proposals or PROPOSALS, int(work / size))
    if proposals == 0:
        return plan
    rows, pace = plan.expert_of_slot.copy(), frozen(speed.mean() / speed, np.float64)

    def walk(layer: int) -> None:
        cost = _costs(samples, layer, windows, plan.ranks)
        kernels.load().settle(
            plan.expert_of_slot[layer], plan.rank_of_slot, frozen(cost), weight, pace, WALKS, proposals,
            problem.seed + layer, rows[layer],
        )  # fmt: skip

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in pool.map(walk, range(plan.layers)):
            pass
    return replace(plan, expert_of_slot=rows)


def _distinct(samples: Samples) -> tuple[IntArray, FloatArray]:
    """Where windows that differ are found, and float64[T] the share of each."""
    real = np.flatnonzero(samples.per_step > 0)
    columns = np.vstack([samples.tokens[:, :, real].reshape(-1, len(real)), samples.per_step[real]])
    _, first, count = np.unique(columns, axis=1, return_index=True, return_counts=True)
    return real[first], frozen(count / len(real), np.float64)


def _costs(samples: Samples, layer: int, windows: IntArray, ranks: int) -> FloatArray:
    """float64[E, C, T] of a slot by how many replicas its expert has; no expert has more of them than there are
    ranks."""
    tokens = samples.tokens[layer][:, None, windows].astype(np.float64) / np.arange(1, ranks + 1)[:, None]
    busy = 1 - np.exp(-tokens * samples.per_step[windows])
    cost: FloatArray = samples.slope * tokens + samples.active * busy
    return cost
