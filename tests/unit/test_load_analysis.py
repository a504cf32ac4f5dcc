"""Skew, persistence, over-dispersion and placed imbalance against hand-made and simulated loads."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import IntArray
from easybalance_sim.load.analysis import imbalance, over_dispersion, persistence, placed_imbalance, reading, skew
from easybalance_sim.load.hotspots import even_share


def test_skew_of_even_and_extreme_layers() -> None:
    found = skew(np.array([[5, 5, 5, 5], [20, 0, 0, 0], [0, 0, 0, 0]]))
    assert found.max_over_mean.tolist() == [1, 4, 0]
    assert found.entropy == pytest.approx([1, 0, 0])
    assert found.gini == pytest.approx([0, 0.75, 0])


def test_gini_equals_its_definition() -> None:
    load = np.random.default_rng(0).integers(1, 100, (3, 12))
    pairs = np.abs(load[:, :, None] - load[:, None, :]).sum(axis=(1, 2)) / (2 * 12 * load.sum(axis=1))
    assert skew(load).gini == pytest.approx(pairs)


def test_entropy_equals_its_definition() -> None:
    load = np.random.default_rng(1).integers(1, 100, (3, 12))
    share = load / load.sum(axis=1, keepdims=True)
    assert skew(load).entropy == pytest.approx(-(share * np.log(share)).sum(axis=1) / np.log(12))


def test_persistence_of_equal_and_turned_windows() -> None:
    rising = np.arange(20)
    same = persistence(np.stack([rising, rising * 3])[:, None, :])
    assert same.correlation == pytest.approx([1]) and same.hot_overlap == pytest.approx([1])
    turned = persistence(np.stack([rising, rising[::-1]])[:, None, :])
    assert turned.correlation == pytest.approx([-1]) and turned.hot_overlap == pytest.approx([0])
    assert np.isnan(persistence(rising[None, None, :]).correlation).all()


def test_persistence_equals_numpy_over_windows() -> None:
    tokens = np.random.default_rng(2).poisson(30, (5, 2, 10))
    wanted = [
        np.mean([np.corrcoef(tokens[w, layer], tokens[w + 1, layer])[0, 1] for w in range(4)]) for layer in range(2)
    ]
    assert persistence(tokens).correlation == pytest.approx(wanted)


def without_replacement(windows: int, tokens: int, experts: int, top_k: int, seed: int) -> IntArray:
    """[W, 1, E] counts of independent tokens, each with K distinct experts of uneven weight."""
    rng = np.random.default_rng(seed)
    clocks = rng.standard_exponential((windows, tokens, experts)) * np.arange(1, experts + 1)
    chosen = np.argpartition(clocks, top_k, axis=2)[:, :, :top_k]
    counts = [np.bincount(window.ravel(), minlength=experts) for window in chosen]
    return np.stack(counts)[:, None, :].astype(np.int64)


@pytest.mark.parametrize("top_k", [1, 4, 8])
def test_independent_tokens_have_dispersion_one(top_k: int) -> None:
    (found,) = over_dispersion(without_replacement(400, 100, 16, top_k, seed=top_k), top_k)
    assert found == pytest.approx(1.0, abs=0.05)


def test_two_alternating_topics_are_over_dispersed() -> None:
    calm = without_replacement(100, 100, 16, 4, seed=0)
    turned = calm.copy()
    turned[1::2] = calm[1::2, :, ::-1]
    assert over_dispersion(turned, 4)[0] > 10


def test_dispersion_is_unknown_for_one_window_and_for_one_set_of_experts() -> None:
    assert np.isnan(over_dispersion(np.array([[[3, 4, 5]]]), 1)[0])
    assert np.isnan(over_dispersion(np.array([[[3, 3, 0]], [[4, 4, 0]]]), 2)[0])


@pytest.mark.parametrize(
    ("dispersion", "says"),
    [(1.02, "batch noise: "), (2.0, "part noise, part real: 50 %"), (10.0, "real: 90 %"), (np.nan, "unknown")],
)
def test_reading(dispersion: float, says: str) -> None:
    assert reading(dispersion).startswith(says)


def test_imbalance_of_nothing_is_one() -> None:
    assert imbalance(np.array([[0, 0], [3, 1], [2, 2]])).tolist() == [1, 1.5, 1]


def test_placed_imbalance_over_ranks_and_uneven_nodes() -> None:
    share = even_share(np.array([[0, 1, 2, 3]]), np.array([0, 0, 1, 2]), 4, 3)
    ranks, nodes = placed_imbalance(np.array([[[4, 2, 3, 3]]]), share, np.array([0, 0, 1]))
    # Ranks carry 6, 3, 3 tokens; node 0 has two ranks (4.5 per rank), node 1 has one (3).
    assert ranks.tolist() == [[1.5]]
    assert nodes == pytest.approx(np.array([[4.5 / 3.75]]))
