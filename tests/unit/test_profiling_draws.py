from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.profiling.draws import (
    RankDraws,
    Recipe,
    _by_rank,
    completed,
    distinct_tokens,
    draw,
    levelled,
    power_law,
    replicated,
)

PLAIN = Recipe(tokens=96, experts=32, top_k=4, ranks=4, alpha=1.2, slots=32)
SPARSE = replace(PLAIN, tokens=4)
EPLB = replace(PLAIN, eplb=True)
SPARE = replace(PLAIN, eplb=True, slots=40)
OLDER, OLDER_SPARSE = (replace(one, older_draws=True) for one in (PLAIN, SPARSE))


def test_tokens_are_added_to_the_smallest_and_taken_from_the_largest() -> None:
    counts = np.array([[5, 0, 2], [5, 0, 2], [5, 0, 2]])
    assert levelled(counts, np.array([3, -4, 0]), 9).tolist() == [[5, 3, 2], [1, 0, 2], [5, 0, 2]]
    assert levelled(np.array([[9, 8, 8]]), np.array([2]), 9).tolist() == [[9, 9, 9]]


def test_overflow_fills_the_smallest_expert_and_rounding_goes_round() -> None:
    recipe = Recipe(tokens=6, experts=3, top_k=2, ranks=1, alpha=1.2, eplb=True, slots=3)
    shares = np.array([[6, 1, 0], [4, 3, 3], [5, 5, 3]])
    assert completed(shares, recipe).tolist() == [[6, 1, 5], [4, 4, 4], [5, 5, 2]]


def test_older_draws_give_to_the_smallest_of_all_and_exchange_the_busiest_rank() -> None:
    """Eight assignments over two ranks: both missing ones go to the empty experts, not one to each rank."""
    shares = np.array([[0, 0, 3, 3]])
    turns = Recipe(tokens=4, experts=4, top_k=2, ranks=2, alpha=1.2, slots=4)
    older = replace(turns, older_draws=True)
    assert _by_rank(shares, older).tolist() == [[3, 3, 1, 1]]
    assert _by_rank(shares, turns).tolist() == [[4, 3, 1, 0]]
    assert _by_rank(np.array([[4, 1, 0, 0]]), older).tolist() == [[4, 1, 3, 0]]


def test_older_draws_leave_more_experts_of_the_busiest_rank_active_where_tokens_are_few() -> None:
    few = Recipe(tokens=4, experts=256, top_k=8, ranks=4, alpha=0.6, slots=256)
    turns, older = ((draw(one, 40, seed=100).counts > 0).sum(axis=1) for one in (few, replace(few, older_draws=True)))
    assert (turns.mean(), older.mean()) == (8, 32)


def test_what_an_empty_expert_cannot_give_the_largest_gives() -> None:
    recipe = Recipe(tokens=2, experts=4, top_k=2, ranks=1, alpha=1.2, eplb=True, slots=4)
    assert completed(np.array([[2, 2, 1, 0]]), recipe).tolist() == [[1, 2, 1, 0]]


def test_spare_slots_go_to_the_most_tokens_per_replica() -> None:
    load, expert = replicated(np.array([[9, 2, 5]]), 5)
    assert expert.tolist() == [[0, 1, 2, 0, 2]]
    assert load.tolist() == [[4.5, 2, 2.5, 4.5, 2.5]]


def test_distinct_tokens_of_a_hand_worked_layout() -> None:
    # Five tokens, top-2. In descending count: expert 0 takes tokens 0-3, expert 2 tokens 4, 0, 1, expert 3 tokens 2, 3,
    # expert 1 token 4.
    counts = np.array([[4, 1, 3, 2]])
    assert distinct_tokens(counts, 1, 5).tolist() == [4]
    assert distinct_tokens(counts, 2, 5).tolist() == [5]
    assert distinct_tokens(counts[:, [2, 3, 0, 1]], 2, 5).tolist() == [5]
    assert distinct_tokens(counts[:, [2, 1, 0, 3]], 2, 5).tolist() == [3]


@pytest.mark.parametrize("recipe", [PLAIN, SPARSE, EPLB, SPARE, OLDER, OLDER_SPARSE])
def test_the_timed_rank_is_the_busiest_and_no_slot_holds_more_than_all_tokens(recipe: Recipe) -> None:
    found = draw(recipe, 40, seed=100)
    mean_load = recipe.tokens * recipe.top_k / recipe.ranks
    assert found.counts.shape == (40, recipe.slots // recipe.ranks)
    assert (found.counts.sum(axis=1) >= int(mean_load)).all()
    assert found.counts.min() >= 0
    assert found.counts.max() <= recipe.tokens
    assert (found.distinct <= np.minimum(found.counts.sum(axis=1), recipe.tokens)).all()
    assert (found.distinct >= found.counts.max(axis=1)).all()


def test_placement_by_eplb_lowers_the_busiest_rank() -> None:
    plain, eplb, spare = (draw(recipe, 60, seed=100).counts.sum(axis=1).mean() for recipe in (PLAIN, EPLB, SPARE))
    assert spare < eplb < plain


def test_shares_follow_the_recipe() -> None:
    rng = np.random.default_rng(100)
    dense, sparse = power_law(rng, PLAIN, 200), power_law(rng, SPARSE, 200)
    assert dense.max() == PLAIN.tokens
    assert sparse.max() <= SPARSE.tokens
    assert abs(dense.sum(axis=1).mean() / (PLAIN.tokens * PLAIN.top_k) - 1) < 0.2


def test_the_same_seed_draws_the_same() -> None:
    one, again, other = draw(SPARE, 5, seed=100), draw(SPARE, 5, seed=100), draw(SPARE, 5, seed=101)
    assert np.array_equal(one.counts, again.counts)
    assert not np.array_equal(one.counts, other.counts)


def test_draws_nearest_to_the_recorded_tokens_are_kept() -> None:
    found = RankDraws(counts=frozen([[1], [2], [3], [4]]), distinct=frozen([10, 20, 30, 40]))
    kept = found.nearest(29, 2)
    assert kept.distinct.tolist() == [30, 20]
    assert kept.counts.tolist() == [[3], [2]]
