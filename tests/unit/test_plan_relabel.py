"""Ranks renamed and slots kept, on plans small enough to read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots, nearest_to

ONE_KIND = np.zeros(3, np.int64)


def plan(*ranks: Sequence[int], layers: int = 1) -> Plan:
    return Plan(
        expert_of_slot=np.array([np.concatenate(ranks)] * layers),
        slots_per_rank=np.array([len(rank) for rank in ranks]),
        experts=6,
        policy="mine",
    )


def by_rank(found: Plan, layer: int = 0) -> list[list[int]]:
    return [held.tolist() for held in np.split(found.expert_of_slot[layer], found.slot_start[1:-1])]


OLD = plan([0, 1, 2], [2, 3, 4], [4, 5, 0])


def test_the_same_sets_on_other_ranks_need_no_move() -> None:
    found = nearest_to(OLD, plan([0, 4, 5], [2, 1, 0], [4, 3, 2]), ONE_KIND)
    assert by_rank(found) == by_rank(OLD)
    assert found.policy == "mine"


def test_ranks_of_different_kind_keep_their_sets() -> None:
    new = plan([0, 4, 5], [2, 1, 0], [4, 3, 2])
    found = nearest_to(OLD, new, np.array([0, 1, 1]))
    assert by_rank(found) == [[0, 4, 5], [2, 3, 4], [2, 1, 0]]
    assert [sorted(rank) for rank in by_rank(nearest_to(OLD, new, np.arange(3)))] == [[0, 4, 5], [0, 1, 2], [2, 3, 4]]


def test_each_layer_is_renamed_on_its_own() -> None:
    rows = np.array([[0, 4, 5, 2, 1, 0, 4, 3, 2], [0, 1, 2, 2, 3, 4, 4, 5, 0]])
    new = Plan(expert_of_slot=rows, slots_per_rank=np.full(3, 3), experts=6, policy="mine")
    found = nearest_to(plan([0, 1, 2], [2, 3, 4], [4, 5, 0], layers=2), new, ONE_KIND)
    assert by_rank(found, 0) == by_rank(found, 1) == by_rank(OLD)


def test_the_overlap_as_a_whole_counts() -> None:
    """Rank 0 wants the first set most (2 of 3), but rank 1 would lose all: together the second way is better."""
    old = plan([0, 1, 2], [0, 1, 4], [3, 5, 4])
    new = plan([3, 4, 5], [0, 1, 4], [2, 0, 3])
    assert int(moving_slots(old, nearest_to(old, new, ONE_KIND)).sum()) == 1


def test_ranks_with_other_numbers_of_slots_are_not_exchanged() -> None:
    """A plan may use fewer slots than the cluster has, and not the same number on every rank."""
    old, new = plan([0, 1, 2], [2, 3, 4], [4, 5, 0]), plan([2, 3, 4], [0, 1], [5])
    assert by_rank(nearest_to(old, new, ONE_KIND)) == [[3, 4, 2], [0, 1], [5]]
    new = plan([4, 5, 0], [2, 1], [3, 2])
    assert by_rank(nearest_to(old, new, ONE_KIND)) == [[0, 4, 5], [2, 3], [2, 1]]


@pytest.mark.parametrize(
    ("new", "kept"),
    [
        (plan([2, 1, 0], [4, 3, 2], [0, 5, 4]), [[0, 1, 2], [2, 3, 4], [4, 5, 0]]),
        (plan([5, 0, 3], [2, 3, 1], [5, 4, 0]), [[0, 5, 3], [2, 3, 1], [4, 5, 0]]),
        (plan([2, 3], [4, 5], [0, 1]), [[2, 3], [4, 5], [0, 1]]),
        (plan([2, 3, 1, 5], [4], [0, 1]), [[3, 1, 2, 5], [4], [0, 1]]),
    ],
    ids=["other order", "some new", "fewer slots", "more slots"],
)
def test_an_expert_that_stays_on_its_rank_keeps_its_slot(new: Plan, kept: list[list[int]]) -> None:
    assert by_rank(keep_slots(OLD, new)) == kept
