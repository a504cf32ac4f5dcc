"""Compiled expert time equals the specification: active counts exactly, seconds to 1e-12 relative."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import frozen
from easybalance_sim.kernels import load


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    load_mean=st.sampled_from([0.05, 1.0, 70.0, 5000.0]),
    q=st.sampled_from([1.0, 1.37, 2.64, 21.0]),
    block=st.sampled_from([1, 64, 128]),
)
def test_numba_equals_reference(seed: int, load_mean: float, q: float, block: int) -> None:
    rng = np.random.default_rng(seed)
    steps, layers, ranks = rng.integers(1, 4, 3)
    sizes = rng.integers(1, 6, ranks)
    slots = rng.poisson(load_mean * rng.gamma(0.5, 2.0, (steps, layers, sizes.sum())))
    start = np.concatenate([[0], np.cumsum(sizes)])
    pairs = np.add.reduceat(slots, start[:-1], axis=-1)
    args = (
        frozen(slots, np.int32),
        frozen(rng.integers(0, pairs + 1), np.int32),
        frozen(start, np.int32),
        frozen(rng.uniform(0.5, 1.5, ranks)),
        frozen(np.array([2e-5, rng.uniform(1e-6, 1e-4), rng.uniform(1e-7, 1e-4), q, block, 1e-8, 1e-8])),
    )
    expected, expected_active = load("reference").expert_seconds(*args)
    seconds, active = load("numba").expert_seconds(*args)
    np.testing.assert_array_equal(active, expected_active)
    np.testing.assert_allclose(seconds, expected, rtol=1e-12, atol=0)
