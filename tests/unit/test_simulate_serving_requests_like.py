"""Rows that serve have the skew that requests have, whatever the length of the recorded ones."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, FloatArray
from easybalance_sim.simulate.serving.moments import RowSums, row_moments, row_sums
from easybalance_sim.simulate.serving.requests_like import requests_like
from easybalance_sim.simulate.serving.routed import Routed, routed_requests
from tests.routed_cases import WORKLOADS, served, token_batch

EXPERTS, RANKS, LAYERS, TOP_K = 32, 8, 6, 4


def routed_by(leaning: FloatArray, tokens: int, seed: int) -> Routed:
    """Prompts and answers of so many tokens, experts drawn with the odds of the request, [N, L, E]."""
    rng, requests = np.random.default_rng([seed, tokens]), len(leaning)
    clocks = rng.standard_exponential((2 * tokens, requests, LAYERS, EXPERTS)) / leaning
    ids = np.argsort(clocks, axis=3)[..., :TOP_K].reshape(-1, LAYERS, TOP_K)
    phase, request = np.repeat([0, 1], tokens * requests), np.tile(np.arange(requests), 2 * tokens)
    position = np.repeat(np.arange(2 * tokens), requests)
    return routed_requests([token_batch(request, phase, position, ids)], WORKLOADS, EXPERTS)


def sums_of(routed: Routed) -> RowSums:
    case = served(1, ranks=RANKS, slots=EXPERTS // RANKS, experts=EXPERTS, routed=routed)
    return row_sums(routed, case.plan, case.replay().subject.dispatch)


def imbalance(mean: AnyArray, spread: AnyArray, tokens: int, seed: int) -> float:
    """Most rows of a rank over the mean, of steps of `RANKS` prompts of so many tokens."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(300):
        rows = 2 * rng.integers(0, len(mean) // 2, RANKS)
        sent = tokens * mean[rows].sum(axis=0, dtype=np.float64)
        variance = tokens * spread[rows].sum(axis=0, dtype=np.float64)
        noise = np.sqrt(variance) * rng.standard_normal(sent.shape)
        sent += noise - variance / variance.sum(axis=1, keepdims=True) * noise.sum(axis=1, keepdims=True)
        found.append((sent.max(axis=1) / sent.mean(axis=1)).mean())
    return float(np.mean(found))


@pytest.mark.parametrize("tokens", [8, 32, 128])
def test_even_routing_is_not_skewed_by_short_rows(tokens: int) -> None:
    """Prompts of 512 tokens; the truth is the noise of their own tokens, and a little of that of all recorded ones."""
    routed = routed_by(np.ones((16384 // tokens, 1, EXPERTS)), tokens, 100)
    sums = sums_of(routed)
    truth = imbalance(np.full((2, LAYERS, RANKS), TOP_K / RANKS), np.stack([sums.pooled] * 2), 512, 1) - 1
    assert imbalance(*requests_like(routed, sums, 512), 512, 1) - 1 == pytest.approx(truth, rel=0.3)
    assert imbalance(*row_moments(routed, sums, 512), 512, 1) - 1 > 1.8 * truth


@pytest.mark.parametrize("tokens", [16, 64])
def test_requests_vary_as_much_as_they_do(tokens: int) -> None:
    """Rows of 1,024 tokens of the same requests tell by how much."""
    leaning = np.random.default_rng(101).gamma(3.0, size=(150, LAYERS, EXPERTS))
    known = sums_of(routed_by(leaning, 1024, 102)).mean.var(axis=0).sum(axis=1)
    routed = routed_by(leaning, tokens, 103)
    sums = sums_of(routed)
    mean, _ = requests_like(routed, sums, 0)
    found, recorded = mean.var(axis=0).sum(axis=1), sums.mean.var(axis=0).sum(axis=1)
    assert found.mean() == pytest.approx(known.mean(), rel=0.15)
    assert recorded.mean() > (1.6 if tokens < 64 else 1.15) * known.mean()


def test_what_no_chance_explains_stays() -> None:
    """Every request sends all its tokens to its own experts."""
    leaning = np.full((8, 1, EXPERTS), 1e-9)
    for request in range(8):
        leaning[request, 0, TOP_K * request : TOP_K * (request + 1)] = 1.0
    routed = routed_by(leaning, 16, 104)
    sums = sums_of(routed)
    mean, spread = requests_like(routed, sums, 0)
    recorded, _ = row_moments(routed, sums, 0)
    np.testing.assert_allclose(mean, recorded, atol=1e-6)
    assert not spread.any()
