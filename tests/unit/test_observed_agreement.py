"""Correlation, bias and the slowest rank, on times made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.observed.agreement import agreement, correlation

GROUP = np.repeat(np.arange(2), 3)


def test_figures_by_hand() -> None:
    tokens, us = np.array([10.0, 20, 30, 10, 10, 40]), np.array([20.0, 40, 60, 30, 20, 70])
    found = agreement(tokens, us, GROUP, scaled=True)
    assert (found.scale, found.bias) == (2, 0)
    assert found.error == pytest.approx((10 + 10) / 240)
    assert (found.slowest_agrees, found.busiest_time) == (1, 1)
    assert found.slowest_by_chance == pytest.approx(1 / 3)
    assert found.imbalance == pytest.approx((1.5 + 2) / 2)
    assert found.measured_imbalance == pytest.approx((1.5 + 1.75) / 2)
    assert found.pearson == pytest.approx(float(np.corrcoef(tokens, us)[0, 1]))


def test_a_line_is_recognised() -> None:
    tokens = np.array([10.0, 20, 30, 15, 5, 40])
    found = agreement(tokens, 7 + 0.5 * tokens, GROUP, scaled=True)
    assert (found.pearson, found.spearman, found.within) == pytest.approx((1, 1, 1))
    assert found.fixed_us == pytest.approx(7)


def test_groups_of_different_size_do_not_flatter() -> None:
    """Big steps take longer, but inside a step the order is the wrong way round."""
    tokens, us = np.array([10.0, 11, 12, 100, 101, 102]), np.array([12.0, 11, 10, 102, 101, 100])
    found = agreement(tokens, us, GROUP, scaled=False)
    assert found.pearson is not None and found.pearson > 0.99
    assert found.within == pytest.approx(-1)
    assert (found.slowest_agrees, found.bias) == (0, 0)
    assert found.busiest_time == pytest.approx((10 / 12 + 100 / 102) / 2)


def test_ties_count_for_their_share() -> None:
    found = agreement(np.array([5.0, 5, 5, 1, 2, 3]), np.array([1.0, 2, 4, 1, 2, 3]), GROUP, scaled=True)
    assert found.slowest_agrees == pytest.approx((1 / 3 + 1) / 2)


def test_what_does_not_vary_has_no_correlation() -> None:
    assert correlation(np.full(5, 0.1), np.arange(5.0)) is None
    assert agreement(np.array([3.0, 3, 3, 7, 7, 7]), np.arange(1.0, 7), GROUP, scaled=True).within is None
