"""Micro-batches with whole seconds, so that everything about them is exact."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.simulate.layer_queue.queue import Jobs


def whole_second_jobs(seed: int, batches: int, stages: int, ranks: int, lanes: int) -> Jobs:
    """Random seconds 0..3 of parts and 0..1 of the way between stages; lanes take turns."""
    rng = np.random.default_rng(seed)
    return Jobs(
        service=frozen(rng.integers(0, 4, (batches, stages, ranks)), np.float64),
        delay=frozen(rng.integers(0, 2, (batches, stages)), np.float64),
        lane=frozen(np.arange(batches) % lanes, np.int32),
        tokens=np.ones(batches),
    )
