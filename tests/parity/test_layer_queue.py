"""Queues of micro-batches against their specification.

Claimed: the same moments, bit for bit, also where many things happen at one moment.
"""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.kernels import numba_layer_queue, reference_layer_queue
from easybalance_sim.simulate.layer_queue.queue import RULES
from tests.layer_queues import whole_second_jobs


@pytest.mark.parametrize("rule", range(len(RULES)), ids=RULES)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (6, 3, 2, 2), (9, 4, 3, 4), (12, 2, 5, 3)], ids=str)
def test_the_compiled_queue_is_the_specified_one(shape: tuple[int, int, int, int], rule: int) -> None:
    for seed in range(8):
        jobs = whole_second_jobs(seed, *shape)
        given = (jobs.service, jobs.delay, jobs.lane, jobs.hot, jobs.tail, rule, 3.0)
        ours, theirs = numba_layer_queue.layer_queue(*given), reference_layer_queue.layer_queue(*given)
        for mine, specified in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, specified)
