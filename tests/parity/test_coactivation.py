"""numba against the naive loops: pairs of experts, to the last integer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.kernels import numba_coactivation, reference_coactivation


def distinct_ids(tokens: int, layers: int, experts: int, top_k: int, seed: int, dtype: type = np.uint8) -> AnyArray:
    """[T, L, K], low ids more often."""
    race = np.random.default_rng(seed).exponential(1 + np.arange(experts), (tokens, layers, experts))
    return frozen(np.argsort(race, axis=2)[..., :top_k], dtype)


def both(chosen: AnyArray, experts: int) -> tuple[IntArray, IntArray]:
    """What numba and the specification add to a symmetric start."""
    layers = chosen.shape[1]
    start = np.arange(experts)[:, None] + np.arange(experts) + np.arange(layers)[:, None, None]
    found, specified = start.astype(np.int64), start.astype(np.int64)
    numba_coactivation.coactivation(chosen, found)
    reference_coactivation.coactivation(chosen, specified)
    return found, specified


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 30), st.integers(1, 4), st.integers(1, 12), st.integers(1, 5), st.integers(0, 99),
    st.sampled_from([np.uint8, np.uint16]),
)  # fmt: skip
def test_pairs(tokens: int, layers: int, experts: int, top_k: int, seed: int, dtype: type) -> None:
    chosen = distinct_ids(tokens, layers, experts, min(top_k, experts), seed, dtype)
    found, specified = both(chosen, experts)
    np.testing.assert_array_equal(found, specified)
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1))


@pytest.mark.parametrize("experts", [256, 300])
def test_many_experts(experts: int) -> None:
    found, specified = both(distinct_ids(50, 3, experts, 8, 0, np.uint16), experts)
    np.testing.assert_array_equal(found, specified)


def test_pairs_by_hand() -> None:
    for kernels in (numba_coactivation, reference_coactivation):
        out = np.zeros((1, 3, 3), np.int64)
        kernels.coactivation(frozen([[[2, 0]], [[0, 2]], [[1, 2]]], np.uint8), out)
        assert out[0].tolist() == [[2, 0, 2], [0, 1, 1], [2, 1, 3]]
