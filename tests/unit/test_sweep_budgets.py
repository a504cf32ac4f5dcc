"""Slots by layer: the best choice under a budget, held against trying all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.sweep.budgets import cheapest_levels, columns, layer_loss


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_no_other_choice_within_the_budget_is_better(seed: int, levels: int, layers: int, budget: int) -> None:
    rng = np.random.default_rng(seed)
    loss = rng.integers(0, 6, (levels, layers)).astype(float)
    price = np.concatenate([[0], np.cumsum(rng.integers(1, 3, levels - 1))]).astype(np.int64)
    found = cheapest_levels(loss, price, budget)
    chosen = (loss[found, np.arange(layers)].sum(), price[found].sum())
    assert chosen[1] <= budget
    all_choices = [np.array(one) for one in itertools.product(range(levels), repeat=layers)]
    able = [(loss[one, np.arange(layers)].sum(), price[one].sum()) for one in all_choices if price[one].sum() <= budget]
    assert chosen == min(able)


def test_slots_go_where_they_win_most() -> None:
    loss = np.array([[9.0, 5.0, 1.0], [5.0, 4.0, 1.0], [2.0, 3.5, 1.0]])
    assert cheapest_levels(loss, np.array([0, 1, 2]), 3).tolist() == [2, 1, 0]
    assert cheapest_levels(loss, np.array([0, 1, 2]), 2).tolist() == [2, 0, 0]
    assert cheapest_levels(loss, np.array([0, 1, 2]), 0).tolist() == [0, 0, 0]


def test_a_gain_that_comes_late_is_not_missed() -> None:
    """Greedy by marginal gain would stop at layer 0: its second slot alone wins more than the first of layer 1."""
    loss = np.array([[9.0, 9.0], [9.0, 8.0], [1.0, 7.0]])
    assert cheapest_levels(loss, np.array([0, 1, 2]), 2).tolist() == [2, 0]


def test_the_loss_of_a_layer_is_its_mean_power() -> None:
    values = np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan]])
    assert layer_loss(values).tolist() == [2.0, 2.0, 0.0]
    assert layer_loss(values, 2).tolist() == [5.0, 4.0, 0.0]


def test_columns_come_from_the_level_of_their_layer() -> None:
    first, second = np.zeros((2, 3)), np.ones((2, 3))
    assert columns([first, second], np.array([0, 1, 0])).tolist() == [[0, 1, 0], [0, 1, 0]]
    with pytest.raises(IndexError):
        columns([first], np.array([1, 0, 0]))
