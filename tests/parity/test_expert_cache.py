"""Caches of experts against their specification.

Claimed: the same depths, counts and moments, bit for bit, also where priorities are equal.
"""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.kernels import numba_expert_cache, reference_expert_cache
from tests.expert_caches import asked, wanted

SHAPES = [(30, 1, 4), (25, 3, 5), (12, 2, 9)]


@pytest.mark.parametrize("ties", [3, 10_000])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_depths_are_the_specified_ones(shape: tuple[int, int, int], whole: bool, ties: int) -> None:
    for seed in range(6):
        given = asked(seed, *shape, whole=whole, ties=ties)
        found = []
        for module in (numba_expert_cache, reference_expert_cache):
            state = given.empty()
            depth = module.stack_depths(given.start, given.item, given.priority, given.group, *state)
            found.append((depth, *state))
        for mine, specified in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, specified)


@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_runs_are_the_specified_ones(shape: tuple[int, int, int], whole: bool, ahead: int) -> None:
    for seed in range(12):
        given = asked(seed, *shape, whole=whole)
        rng = np.random.default_rng([seed, 2])
        capacity = frozen(rng.integers(0, given.items // given.caches + 1, given.caches), np.int64)
        compute = frozen(rng.integers(0, 5, given.positions), np.float64)
        link = frozen([rng.integers(0, 2), rng.integers(0, 3)], np.float64)
        stack, length, value = given.empty()
        numba_expert_cache.stack_depths(given.start, given.item, given.priority, given.group, stack, length, value)
        arguments = (
            given.start, given.item, given.tokens, given.priority, given.group, capacity, stack, length, value,
            compute, link, *wanted(seed, given), ahead,
        )  # fmt: skip
        ours, theirs = numba_expert_cache.run_cache(*arguments), reference_expert_cache.run_cache(*arguments)
        for mine, specified in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, specified)
