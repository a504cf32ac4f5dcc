"""Variance of rank loads beyond chance, on windows whose variance is known."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.load.headroom import NOISE, excess_std, searched_steps, spread
from tests.window_problems import EXPERTS, chance_windows, topic_windows

RANK_OF_SLOT = frozen(np.repeat(np.arange(8), 5), np.int32)


def greedy(windows: AnyArray) -> AnyArray:
    slots: AnyArray = kernels.load().greedy(frozen(windows.mean(axis=0)), frozen(np.full(8, 5), np.int64))
    return slots


@pytest.mark.parametrize("tokens", [256, 4096])
@pytest.mark.parametrize("windows", [8, 64, 512])
def test_chance_draws_are_noise_whatever_their_size(windows: int, tokens: int) -> None:
    found = [
        excess_std(sample, greedy(sample), RANK_OF_SLOT)
        for sample in (chance_windows(seed, windows, layers=8, tokens=tokens) for seed in range(5))
    ]
    assert np.median(found) < NOISE


def test_two_alternating_mixtures_have_the_known_excess() -> None:
    """Experts 0, 1 on rank 0 carry 60 % or 40 % of every other window: relative load 1.2 or 0.8, deviation 0.2."""
    share = np.array([[0.3, 0.3, 0.2, 0.2], [0.2, 0.2, 0.3, 0.3]])
    rng = np.random.default_rng(0)
    tokens = rng.multinomial(20_000, share[np.arange(400) % 2])[:, None, :]
    slots, rank_of_slot = frozen([[0, 1, 2, 3]], np.int32), frozen([0, 0, 1, 1], np.int32)
    assert excess_std(tokens, slots, rank_of_slot) == pytest.approx(0.2, rel=0.01)


def distinct_choices(rng: np.random.Generator, weight: AnyArray, tokens: int, top_k: int) -> AnyArray:
    """int64[E] counts of tokens that each choose `top_k` experts at once (Gumbel top-k)."""
    keys = np.log(weight) + rng.gumbel(size=(tokens, len(weight)))
    return np.bincount(np.argpartition(-keys, top_k, axis=1)[:, :top_k].ravel(), minlength=len(weight))


def test_distinct_choices_of_a_token_vary_less_by_chance() -> None:
    """Half of 16 experts on either rank and 8 choices of 16: chance is hypergeometric, 8/15 of the binomial."""
    rng = np.random.default_rng(0)
    lean = np.where(np.arange(16) < 8, 1.05, 0.95)
    windows = np.stack([distinct_choices(rng, lean if w % 2 else lean[::-1], 32, 8) for w in range(3000)])[:, None]
    slots, rank_of_slot = frozen([np.arange(16)], np.int32), frozen(np.repeat([0, 1], 8), np.int32)
    share = np.stack([windows[at::2, 0, :8].sum() / windows[at::2].sum() * 2 for at in range(2)])
    known = float(np.ptp(share)) / 2
    assert excess_std(windows, slots, rank_of_slot, top_k=8) == pytest.approx(known, rel=0.2)
    assert excess_std(windows, slots, rank_of_slot) < 0.5 * known


def test_replicas_share_their_expert() -> None:
    """The same windows with every expert on both ranks: no deviation at all."""
    tokens = np.array([[[900, 100]], [[100, 900]]] * 4)
    slots, rank_of_slot = frozen([[0, 1, 0, 1]], np.int32), frozen([0, 0, 1, 1], np.int32)
    assert excess_std(tokens, slots, rank_of_slot) == 0


def test_topics_are_worth_a_search() -> None:
    windows = topic_windows(0, 64)
    assert excess_std(windows, greedy(windows), RANK_OF_SLOT) > 2 * NOISE


def test_layers_and_windows_without_traffic_do_not_count() -> None:
    windows = topic_windows(0, 32, layers=2)
    alone = excess_std(windows[:, :1], greedy(windows)[:1], RANK_OF_SLOT)
    quiet = np.concatenate([windows, np.zeros((8, 2, EXPERTS), np.int64)])
    quiet[:, 1] = 0
    assert excess_std(quiet, greedy(windows), RANK_OF_SLOT) == pytest.approx(alone, rel=1e-12)
    assert excess_std(np.zeros((8, 2, EXPERTS), np.int64), greedy(windows), RANK_OF_SLOT) == 0


def test_spread_keeps_order_both_ends_and_the_number() -> None:
    windows = np.arange(100)
    kept = spread(windows, 7)
    assert len(kept) == 7 and kept[0] == 0 and kept[-1] == 99
    assert (np.diff(kept) >= 16).all()
    assert spread(windows, 100).tolist() == windows.tolist()


@pytest.mark.parametrize(
    ("windows", "steps", "searched"),
    [(500, 16, 16), (128, 16, 16), (127, 16, 8), (40, 16, 4), (22, 64, 8), (5, 64, 8), (5, 3, 1), (5, 1, 1)],
)
def test_few_windows_are_cut_up_to_eight_times_shorter(windows: int, steps: int, searched: int) -> None:
    assert searched_steps(windows, steps) == searched
