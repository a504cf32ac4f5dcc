"""Draws of a known exponent: the fit finds it."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from easybalance_sim.profiling.alpha import curve, drawn, gini

STEPS, ERRORS, ROUNDING, BELOW_ONE = 200, 4, 0.02, 0.05


@settings(max_examples=12, deadline=None)
@example(alpha=1.125, experts=128, top_k=7, spread=[0], seed=517)
@given(
    alpha=st.floats(0.3, 1.2).filter(lambda value: abs(value - 1) > 1e-6),
    experts=st.sampled_from([64, 128, 160, 256]),
    top_k=st.integers(4, 8),
    spread=st.lists(st.integers(0, 8), min_size=1, max_size=3),
    seed=st.integers(100, 10_000),
)
def test_the_exponent_of_draws_is_found(alpha: float, experts: int, top_k: int, spread: list[int], seed: int) -> None:
    """From 200 steps of up to three sizes, two choices per expert or more: to four standard errors of the mean Gini,
    by the slope of the curve there, which flattens out above 1; below 1 to 0.05 at most."""
    rng = np.random.default_rng(seed)
    sizes = [-(-2 * experts // top_k) << power for power in spread]
    steps = [drawn(size, experts, top_k, alpha, STEPS // len(sizes), rng) for size in sizes]
    known = curve(np.repeat(sizes, [len(counts) for counts in steps]), experts, top_k)
    seen = gini(np.concatenate(steps))
    low, high = np.interp([alpha - 0.1, alpha + 0.1], known.alpha, known.gini)
    chance = max(float(gini(counts).std()) for counts in steps) / np.sqrt(STEPS)
    error = abs(float(known.alpha_of(np.array([seen.mean()]))[0]) - alpha)
    limit = ROUNDING + ERRORS * chance * 0.2 / (high - low)
    assert error < (min(limit, BELOW_ONE) if alpha < 1 else limit)
