"""Hot spots: lasting growth counts, spikes do not, and a rank can be hot when none of its experts is."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.load.hotspots import even_share, hot_experts, hot_ranks, node_heat, rank_heat, staying_hot


def one_layer(*windows: list[int]) -> np.ndarray:
    return np.array(windows)[:, None, :]


def test_three_windows_above_the_mean_and_growing_is_hot() -> None:
    found = hot_experts(one_layer([10, 5, 5], [11, 5, 5], [13, 5, 5]))
    assert found.hot[:, 0].tolist() == [[False] * 3, [False] * 3, [True, False, False]]
    assert found.windows.tolist() == [[1, 0, 0]]
    assert found.suppressed == 0


def test_a_single_spike_is_suppressed() -> None:
    found = hot_experts(one_layer([5, 5, 5], [5, 5, 5], [50, 5, 5], [5, 5, 5]))
    assert not found.hot.any()
    assert found.suppressed == 1


def test_lasting_without_growth_is_not_hot() -> None:
    steady = hot_experts(one_layer([10, 5, 5], [10, 5, 5], [11, 5, 5]))
    assert not steady.hot.any() and steady.suppressed == 0


@pytest.mark.parametrize(("last", "hot"), [(115, True), (114, False)])
def test_growth_of_fifteen_percent_is_the_limit(last: int, hot: bool) -> None:
    assert bool(hot_experts(one_layer([90, 5, 5], [100, 5, 5], [last, 5, 5])).hot[2, 0, 0]) is hot


def test_a_window_at_the_mean_breaks_the_row() -> None:
    assert not hot_experts(one_layer([10, 5, 5], [7, 7, 7], [13, 5, 5])).hot.any()


def test_each_layer_has_its_own_mean() -> None:
    tokens = np.array([[[10, 5, 5], [1000, 1000, 1000]]] * 2 + [[[13, 5, 5], [1000, 1000, 1000]]])
    assert hot_experts(tokens).windows.tolist() == [[1, 0, 0], [0, 0, 0]]


def test_fewer_than_three_windows_are_never_hot() -> None:
    found = hot_experts(one_layer([1, 1, 9], [1, 1, 99]))
    assert not found.hot.any() and found.suppressed == 0
    assert hot_experts(one_layer([1, 1, 9])).windows.tolist() == [[0, 0, 0]]


def test_what_three_windows_put_over_the_threshold_stays_hot_until_below_a_lower_one() -> None:
    # Shares of the first of two over three windows: 1.2, 1.3, 1.15, 1.0; twelve in all are 0.5 each.
    found = staying_hot(one_layer([12, 8], [12, 8], [13, 7], [14, 6], [8, 12], [10, 10]))
    assert found.hot[:, 0, 0].tolist() == [False, False, True, True, True, False]
    assert not found.hot[:, 0, 1].any() and found.windows.tolist() == [[3, 0]]


def test_spikes_that_pass_are_not_staying_hot() -> None:
    found = staying_hot(one_layer([10, 10], [10, 10], [13, 7], [10, 10], [10, 10]))
    assert not found.hot.any() and found.suppressed == 1
    assert not staying_hot(one_layer([19, 1], [19, 1])).hot.any()


def test_nothing_is_hot_without_load() -> None:
    found = staying_hot(one_layer([19, 1], [19, 1], [19, 1], [0, 0], [0, 0], [0, 0]))
    assert found.hot[:, 0, 0].tolist() == [False, False, True, True, True, False]


def test_rank_heat_sums_all_layers_and_splits_over_replicas() -> None:
    # Layer 0: rank 0 holds experts 0 and 1, rank 1 holds 2 and a second replica of 0. Layer 1: experts 1 and 2 swap.
    share = even_share(np.array([[0, 1, 2, 0], [0, 2, 1, 0]]), np.array([0, 0, 1, 1]), 3, 2)
    assert share[0].tolist() == [[0.5, 0.5], [1, 0], [0, 1]]
    heat = rank_heat(np.array([[[10, 3, 1], [20, 5, 7]]]), share)
    assert heat.tolist() == [[5 + 3 + 10 + 7, 5 + 1 + 10 + 5]]


def test_a_rank_gets_hot_through_layers_whose_experts_do_not() -> None:
    """Each layer's load moves between experts of rank 0, so no expert lasts; the rank does."""
    share = even_share(np.tile(np.arange(8), (4, 1)), np.repeat([0, 1], 4), 8, 2)
    tokens = np.full((3, 4, 8), 4)
    for window, heat in enumerate((10, 12, 15)):
        for layer in range(4):
            tokens[window, layer, (window + layer) % 4] += heat
    assert not hot_experts(tokens).hot.any()
    assert hot_ranks(rank_heat(tokens, share)).windows.tolist() == [0, 0]
    tokens[2, :, :4] += 6
    assert hot_ranks(rank_heat(tokens, share)).hot[2].tolist() == [True, False]


def test_a_rank_without_slots_stays_cold() -> None:
    assert even_share(np.array([[0, 1]]), np.array([0, 1]), 2, 3).tolist() == [[[1, 0, 0], [0, 1, 0]]]


def test_node_heat_is_per_rank() -> None:
    assert node_heat(np.array([[2.0, 4.0, 9.0]]), np.array([0, 0, 1])).tolist() == [[3, 9]]
