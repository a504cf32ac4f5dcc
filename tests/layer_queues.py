"""Micro-batches with whole seconds, so that everything about them is exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.layer_queue.queue import Jobs
from easybalance_sim.simulate.layer_queue.service import ServiceTimes


def whole_second_jobs(seed: int, batches: int, stages: int, ranks: int, lanes: int) -> Jobs:
    """Random seconds 0..3 of parts and 0..1 of the way between stages; lanes take turns."""
    rng = np.random.default_rng(seed)
    return Jobs(
        service=frozen(rng.integers(0, 4, (batches, stages, ranks)), np.float64),
        delay=frozen(rng.integers(0, 2, (batches, stages)), np.float64),
        lane=frozen(np.arange(batches) % lanes, np.int32),
        tokens=np.ones(batches),
    )


def by_tokens(plan: Plan, seconds: Callable[[FloatArray], FloatArray]) -> ServiceTimes:
    """Times that depend on a rank's assignments alone: seconds(float64[…]) → float64[…]; no attention, no ways."""

    def expert(slot_tokens: Int32Array, _: Int32Array) -> FloatArray:
        return seconds(np.add.reduceat(slot_tokens, plan.slot_start[:-1], axis=2).astype(np.float64))

    def travel(loads: FloatArray, _: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.zeros(loads.shape), np.zeros(loads.shape)

    return ServiceTimes(expert=expert, attention=np.zeros_like, travel=travel)
