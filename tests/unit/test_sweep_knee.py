"""Gains beyond noise, and where the knee is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from easybalance_sim.sweep.knee import Gain, gain, knee

NO, STEPS = [False] * 6, list(range(6))


def sure(*saved: float) -> list[Gain]:
    return [Gain(saved=value, noise=0.0) for value in saved]


def test_the_knee_is_the_point_farthest_above_the_line() -> None:
    assert knee(sure(0, 7, 8, 9, 9.5, 10), STEPS, NO) == 1
    assert knee(sure(0, 6, 8, 9, 9.5, 10), STEPS, NO) == 1, "of equal distances the cheaper one"
    assert knee(sure(0, 1, 8, 9, 9.5, 10), STEPS, NO) == 2


def test_where_no_point_is_above_the_line_the_largest_gain_is() -> None:
    assert knee(sure(0, 1, 3, 6), STEPS, NO) == 3
    assert knee(sure(0, 5), STEPS, NO) == 1


def test_points_that_cost_more_and_gain_less_do_not_stretch_the_line() -> None:
    assert knee(sure(0, 4, 8, 3, 2, 1), STEPS, NO) == 2
    assert knee(sure(0, 8, 10), [8, 9, 16], NO) == 1


def test_without_a_gain_there_is_no_knee() -> None:
    assert knee(sure(0, -1, -2), STEPS, NO) is None
    assert knee(sure(0), STEPS, NO) is None


def test_gains_within_the_noise_do_not_count() -> None:
    noisy = [Gain(saved=0, noise=0), Gain(saved=1.9, noise=1), Gain(saved=2.1, noise=1)]
    assert knee(noisy, STEPS, NO) == 2
    assert knee(noisy[:2], STEPS, NO) is None
    assert not Gain(saved=5, noise=math.nan).counts
    assert not Gain(saved=5, noise=0, least=6).counts


def test_a_slower_point_is_no_knee() -> None:
    assert knee(sure(0, 6, 8), STEPS, [False, True, False]) == 2
    assert knee(sure(0, 6, 8), STEPS, [False, True, True]) is None


def test_a_gain_is_the_difference_of_the_p99() -> None:
    rng = np.random.default_rng(0)
    before = rng.random((200, 3)) + 1
    found = gain(before, before - 0.25, 200, tie_frac=0.05)
    assert found.saved == pytest.approx(0.25) and found.noise == pytest.approx(0, abs=1e-9)
    assert found.least == pytest.approx(0.05 * np.quantile(before, 0.99)) and found.counts


def test_noise_is_about_the_spread_of_repeated_measurements() -> None:
    """Two sets of windows from one distribution differ by chance: the noise says by how much."""
    rng = np.random.default_rng(1)
    pairs = [gain(rng.random((320, 4)), rng.random((320, 4)), 320) for _ in range(200)]
    spread = np.std([one.saved for one in pairs])
    assert np.median([one.noise for one in pairs]) == pytest.approx(spread, rel=0.5)
    assert np.mean([one.counts for one in pairs]) < 0.06


def test_too_few_windows_have_no_known_noise() -> None:
    values = np.linspace(1, 2, 7)[:, None]
    assert math.isnan(gain(values, values - 0.5, 7).noise)
    steps = np.linspace(1, 2, 500)
    assert math.isnan(gain(steps, steps - 0.5, 1).noise), "500 steps of one window"


def test_layers_without_traffic_are_left_out() -> None:
    before, after = np.full((40, 2), np.nan), np.full((40, 2), np.nan)
    before[20:, 0], after[20:, 0] = 2.0, 1.5
    found = gain(before, after, 40)
    assert (found.saved, found.noise) == (0.5, 0.0)
