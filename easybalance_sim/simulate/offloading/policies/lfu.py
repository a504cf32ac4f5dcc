"""Least frequently used goes first; a use counts half as much after `HALF_LIFE_STEPS`."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray, sealed
from easybalance_sim.simulate.offloading.policies import History, Priorities

HALF_LIFE_STEPS = 16.0
"""Best of 16, 64, 256, 1,024 and 4,096 on requests of gpt-oss-20b in another order than the reported one."""


def priorities(history: History) -> Priorities:
    """log2 of the sum over an item's uses so far of 2^(step / half-life): what has aged alike can be compared."""
    past, judged = history.past, history.judged
    item = np.concatenate([past.item, judged.item])
    step = np.concatenate([past.position, past.positions + judged.position]) // past.layers
    order = np.argsort(item, kind="stable")
    bounds = np.flatnonzero(np.diff(item[order])) + 1
    parts = [np.logaddexp2.accumulate(part) for part in np.split(step[order] / HALF_LIFE_STEPS, bounds)]
    value: FloatArray = np.empty(len(item))
    value[order] = np.concatenate(parts)
    return Priorities(past=sealed(value[: len(past.item)].copy()), judged=sealed(value[len(past.item) :].copy()))
