"""The order of distributions and the luck of five draws, on rows made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.profiling.fit import ExpertNumbers, Peaks, predicted_us
from easybalance_sim.profiling.work import Workload
from tests.bench.accuracy_experts import draws_us
from tests.bench.accuracy_order import Luck, luck, luck_section, order_lines, perfect_shares
from tests.bench.accuracy_rows import Line
from tests.measured_rows import expert_row

ROWS = [
    expert_row(us=us, distribution=name)
    for us, name in ((100.0, "uniform"), (110.0, "power_law_1.01"), (120.0, "power_law_1.02"), (103.0, "power_law_0.6"))
]
PAIRS = np.array([[0, 1], [0, 2], [1, 2]])
ORDER = Line(item="order", measured=0.97, target=0.98, rows=3, at_most=False, percent=False)


def test_order_is_judged_on_all_pairs_without_twins_and_where_sides_are_taken() -> None:
    """Measured over 5 % apart: all pairs but uniform and 0.6. Wrong: the twins, and 0.6 above 1.01 by 1 %."""
    alike, without, sides = order_lines("x", ROWS, np.array([100.0, 115.0, 108.0, 116.0]), 0.9)
    assert [(line.rows, line.measured) for line in (alike, without)] == [(5, 0.4), (4, 0.5)]
    assert [line.passed for line in (alike, without, sides)] == [False, False, False]
    assert (sides.rows, sides.measured) == (4, 0.5)
    assert sides.item == "x, order where the model takes sides (both gaps over 5 %)"


def test_rows_of_other_cells_are_never_compared() -> None:
    apart = [replace(row, tokens=64 * (1 + at)) for at, row in enumerate(ROWS)]
    assert [line.rows for line in order_lines("x", apart, np.ones(4), 0.9)] == [0, 0, 0]


def test_without_luck_a_perfect_formula_is_always_right() -> None:
    draws = np.repeat(np.array([[1.0], [2.0], [3.0]]), 8, axis=1)
    assert perfect_shares(draws, PAIRS, 20).tolist() == [1.0] * 20


def test_luck_is_the_same_for_a_seed_and_grows_with_the_spread_of_draws() -> None:
    noise = np.random.default_rng(100).normal(size=(3, 64))
    means = np.array([[10.0], [11.0], [12.0]])
    little, much, again, other = (
        perfect_shares(means + spread * noise, PAIRS, 50, seed) for spread, seed in ((2, 0), (6, 0), (6, 0), (6, 1))
    )
    assert np.array_equal(much, again)
    assert not np.array_equal(much, other)
    assert much.mean() < little.mean() < 1


def test_a_mean_of_five_is_wrong_as_often_as_worked_out() -> None:
    """0 or 2 with even chance against 0.9: the mean of all is above it, that of five where at least three are 2."""
    draws = np.array([[0.0, 2.0] * 4, [0.9] * 8])
    found = perfect_shares(draws, np.array([[0, 1]]), 4000)
    assert found.mean() == pytest.approx(16 / 32, abs=0.03)


def test_draws_are_costed_one_by_one() -> None:
    row = expert_row(distribution="power_law_1.2", counts=())
    work = Workload(seed=100).of([row, expert_row(counts=(3,) * 8)], 1)
    numbers, top = (
        ExpertNumbers(c0_us=5, eff_bw=0.5, eff_flop=0.5, q=2, tok=0),
        Peaks(bytes_per_s=1e9, flops=1e9, weight_bytes=1),
    )
    found = draws_us(numbers, work, top)
    assert found.shape == work.active.shape
    assert found.mean(axis=1) == pytest.approx(predicted_us(numbers, work, top))
    assert found[0].std() > 0
    assert found[1].std() == pytest.approx(0)


def test_the_section_says_which_targets_lie_beyond_luck() -> None:
    one = Luck(gpu="a", order=ORDER, expected=0.96, low=0.95, high=0.975)
    within = replace(one, gpu="b", high=0.99)
    text = luck_section([one, within])
    assert "| a DeepGEMM masked | ≥ 0.98 | 0.970 | 0.960 | 0.950-0.975 |" in text
    assert text[-1] == (
        "The target for a, 0.98, lies above the upper end of this range (0.950-0.975); the measured 0.970 lies inside."
    )
    assert luck_section([within])[-1].startswith("| b ")


def test_luck_of_rows_holds_its_order_line() -> None:
    found = luck("h100", ROWS, np.repeat(np.array([[1.0], [2.0], [3.0], [4.0]]), 8, axis=1), ORDER)
    assert (found.expected, found.low, found.high, found.order) == (1, 1, 1, ORDER)
