"""Gini coefficients by hand, the curve of expected draws, and what is read off it."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.profiling.alpha import busiest, curve, drawn, gini


def test_gini_of_counts() -> None:
    assert gini(np.array([[3, 3, 3, 3], [0, 0, 0, 8], [0, 1, 2, 3]])) == pytest.approx([0, 0.75, 10 / 24])
    assert gini(np.array([[0, 1, 2, 3]])) == gini(np.array([[2, 3, 0, 1]]))


def test_busiest_of_counts() -> None:
    assert busiest(np.array([[3, 3, 3, 3], [0, 0, 0, 8], [0, 1, 2, 3]])) == pytest.approx([1, 4, 2])


def test_no_count_is_unknown() -> None:
    assert np.isnan(gini(np.zeros((2, 4), np.int64))).all()
    assert np.isnan(busiest(np.zeros((2, 4), np.int64))).all()


def test_draws_hold_every_choice_and_no_expert_twice_in_a_token() -> None:
    counts = drawn(100, 16, 4, 1.2, 50, np.random.default_rng(0))
    assert counts.shape == (50, 16)
    assert (counts.sum(axis=1) == 400).all() and counts.min() >= 0 and counts.max() <= 100


def test_a_steeper_law_is_less_even_up_to_the_end_of_the_curve() -> None:
    known = curve(np.full(10, 512), 64, 4)
    assert known.alpha[0] == 0 and 1.2 < known.alpha[-1] < 1.6
    assert (np.diff(known.alpha) > 0).all() and (np.diff(known.gini) > 0).all()
    assert (np.diff(known.busiest) > 0).all()


def test_loads_outside_the_curve_get_its_ends() -> None:
    known = curve(np.full(10, 512), 64, 4)
    assert known.alpha_of(np.array([0.0, 0.2, 0.99])).tolist() == [0, 0, known.alpha[-1]]
    assert np.isnan(known.alpha_of(np.array([np.nan]))).all()


def test_the_curve_counts_every_size_as_often_as_it_occurs() -> None:
    """Small steps are more even with these numbers; a mixture lies between, where its shares put it."""
    small, large = curve(np.full(8, 64), 64, 4), curve(np.full(8, 4096), 64, 4)
    both = curve(np.array([64] * 6 + [4096] * 2), 64, 4)
    assert both.gini[10] == pytest.approx(0.75 * small.gini[10] + 0.25 * large.gini[10])


def test_steps_too_small_to_tell_low_alphas_apart_get_the_lowest() -> None:
    """16 tokens × 8 choices among 256 experts: one token each, whatever a low alpha is."""
    known = curve(np.full(8, 16), 256, 8)
    assert known.alpha_of(np.array([known.gini[0]])).tolist() == [0]
    assert known.alpha[1] > 0.3


def test_the_same_seed_gives_the_same_curve() -> None:
    first, again, other = (curve(np.full(4, 100), 32, 2, seed) for seed in (0, 0, 1))
    assert first.gini.tolist() == again.gini.tolist() != other.gini.tolist()


def test_the_busiest_expert_of_draws_leads_back_to_their_alpha() -> None:
    known = curve(np.full(10, 512), 64, 4)
    assert known.alpha_of_busiest(known.busiest).tolist() == pytest.approx(known.alpha.tolist())
    steps = drawn(512, 64, 4, 0.9, 400, np.random.default_rng(100))
    assert known.alpha_of_busiest(np.array([busiest(steps).mean()])) == pytest.approx([0.9], abs=0.03)
    assert known.alpha_of_busiest(np.array([1.0, 60.0])).tolist() == [0, known.alpha[-1]]
