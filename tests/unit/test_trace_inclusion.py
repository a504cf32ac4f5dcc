"""Inclusion probabilities against an enumeration of all ordered draws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.trace.inclusion import inclusion


def enumerated(weights: FloatArray, top_k: int) -> FloatArray:
    chosen = np.zeros(len(weights))
    for draw in itertools.permutations(range(len(weights)), top_k):
        probability, rest = 1.0, float(weights.sum())
        for expert in draw:
            probability *= float(weights[expert]) / rest
            rest -= float(weights[expert])
        chosen[list(draw)] += probability
    return chosen


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_equals_the_enumeration(top_k: int) -> None:
    weights = np.random.default_rng(top_k).gamma(0.3, size=(2, 3, 6)) + 1e-4
    wanted = np.array([[enumerated(row, top_k) for row in layer] for layer in weights])
    np.testing.assert_allclose(inclusion(weights, top_k), wanted, atol=1e-7)


def test_sums_to_top_k_at_real_sizes() -> None:
    weights = np.arange(1, 257.0)[None] ** -1.2
    assert inclusion(weights, 8).sum() == pytest.approx(8, abs=1e-6)


def test_experts_without_weight_are_never_chosen() -> None:
    assert inclusion(np.array([[1e6, 0.0, 1.0, 0.0]]), 2)[0] == pytest.approx([1, 0, 1, 0], abs=1e-7)
