"""Labels of ranks: searched on loads small enough to try all of them, and turned into plans."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.errors import PlanError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.staggering.relabel import (
    Freedom,
    as_is,
    at_random,
    carried,
    descents,
    freedom,
    hottest_together,
    objective,
    relabelled,
    search,
)
from tests.staggering_steps import chance_plan


def free(*kinds: int, layers: int = 2) -> Freedom:
    return Freedom(kinds=np.array(kinds), layers=np.ones(layers, np.bool_))


HOT_TOGETHER = np.array([[[3.0, 1.0], [3.0, 1.0]]])
TAKING_TURNS = np.array([[[3.0, 1.0], [3.0, 1.0]], [[1.0, 3.0], [1.0, 3.0]]])


def test_a_rank_that_is_hot_twice_is_hot_once_afterwards() -> None:
    found = search(HOT_TOGETHER, free(0, 0))
    np.testing.assert_array_equal(carried(HOT_TOGETHER, found).sum(axis=1), [[4, 4]])
    assert objective(HOT_TOGETHER, as_is(2, 2)) == pytest.approx(1.5**8 + 0.5**8)
    assert objective(HOT_TOGETHER, found) == 2


def test_windows_show_what_the_mean_hides() -> None:
    mean = TAKING_TURNS.sum(axis=0, keepdims=True)
    np.testing.assert_array_equal(search(mean, free(0, 0)), as_is(2, 2))
    np.testing.assert_array_equal(
        carried(TAKING_TURNS, search(TAKING_TURNS, free(0, 0))).sum(axis=1), np.full((2, 2), 4)
    )


def test_one_layer_has_nothing_to_gain() -> None:
    np.testing.assert_array_equal(search(HOT_TOGETHER[:, :1], free(0, 0, layers=1)), as_is(1, 2))


def test_ranks_of_different_kinds_and_layers_that_are_held_keep_their_labels() -> None:
    np.testing.assert_array_equal(search(HOT_TOGETHER, free(0, 1)), as_is(2, 2))
    held = Freedom(kinds=np.zeros(2, np.int64), layers=np.array([True, False]))
    np.testing.assert_array_equal(search(HOT_TOGETHER, held), [[1, 0], [0, 1]])
    nothing = Freedom(kinds=np.zeros(2, np.int64), layers=np.zeros(2, np.bool_))
    np.testing.assert_array_equal(search(HOT_TOGETHER, nothing), as_is(2, 2))
    np.testing.assert_array_equal(hottest_together(HOT_TOGETHER[:, :, ::-1], held), [[1, 0], [0, 1]])


def test_a_price_holds_labels_where_they_are() -> None:
    price = np.tile(1.0 - np.eye(2), (2, 1, 1))
    gain = objective(HOT_TOGETHER, as_is(2, 2)) - 2
    assert (search(HOT_TOGETHER, free(0, 0), price=price * gain * 0.4) != as_is(2, 2)).any()
    np.testing.assert_array_equal(search(HOT_TOGETHER, free(0, 0), price=price * gain * 0.6), as_is(2, 2))


def every_labelling(layers: int, ranks: int) -> list[tuple[tuple[int, ...], ...]]:
    """The first layer keeps its labels: only how layers lie to each other counts."""
    permutations = list(itertools.permutations(range(ranks)))
    return [(permutations[0], *rest) for rest in itertools.product(permutations, repeat=layers - 1)]


@pytest.mark.parametrize("seed", range(4))
def test_the_search_finds_the_best_of_all_labels(seed: int) -> None:
    windows = np.random.default_rng(seed).gamma(1.0, size=(5, 3, 4))
    found = objective(windows, search(windows, free(0, 0, 0, 0, layers=3), seed=seed))
    assert found == pytest.approx(min(objective(windows, np.array(one)) for one in every_labelling(3, 4)))


def pair_value(windows: FloatArray) -> float:
    heat = windows / (windows.sum(axis=(1, 2), keepdims=True) / windows.shape[2])
    return float(((heat[:, :-1] + heat[:, 1:]) ** 8).sum())


@pytest.mark.parametrize("seed", range(4))
def test_pairs_of_neighbours_are_evened_out_as_well_as_can_be(seed: int) -> None:
    windows = np.random.default_rng(seed).gamma(1.0, size=(5, 3, 4))
    found = search(windows, free(0, 0, 0, 0, layers=3), pairs=True)
    best = min(pair_value(carried(windows, np.array(one))) for one in every_labelling(3, 4))
    assert pair_value(carried(windows, found)) == pytest.approx(best)


def test_a_window_without_load_counts_nothing() -> None:
    windows = np.concatenate([HOT_TOGETHER, np.zeros((1, 2, 2))])
    np.testing.assert_array_equal(search(windows, free(0, 0)), search(HOT_TOGETHER, free(0, 0)))


def test_of_long_pasts_windows_are_taken_evenly() -> None:
    windows = np.repeat(TAKING_TURNS, 400, axis=0)
    np.testing.assert_array_equal(carried(windows, search(windows, free(0, 0))).sum(axis=1), np.full((800, 2), 4))


def test_the_same_seed_gives_the_same_labels_and_progress_is_told() -> None:
    windows = np.random.default_rng(9).gamma(1.0, size=(6, 4, 5))
    units: list[int] = []
    one, two = (search(windows, free(*[0] * 5, layers=4), seed=3, advance=units.append) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert sum(units) == 2 * descents(6, 4, 5)


def test_large_problems_start_less_often() -> None:
    assert descents(50, 8, 8) > descents(50, 58, 32) > descents(50, 58, 128) > 1


def test_the_worst_labels_put_the_busiest_rank_of_every_layer_first() -> None:
    loads = np.array([[[1.0, 3.0, 2.0, 9.0], [4.0, 2.0, 6.0, 9.0]]])
    np.testing.assert_array_equal(hottest_together(loads, free(0, 0, 0, 1)), [[1, 2, 0, 3], [2, 0, 1, 3]])


def test_random_labels_stay_among_their_kind() -> None:
    found = at_random(50, free(0, 1, 0, 1, layers=50), np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(found, axis=1), as_is(50, 4))
    assert set(found[:, 0].tolist()) == {0, 2}
    assert set(found[:, 1].tolist()) == {1, 3}


def test_a_relabelled_plan_holds_what_the_label_says() -> None:
    plan = Plan(
        expert_of_slot=np.array([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]),
        slots_per_rank=np.array([2, 1, 2]),
        experts=5,
        policy="mine",
    )
    found = relabelled(plan, np.array([[2, 1, 0], [0, 1, 2]]))
    np.testing.assert_array_equal(found.expert_of_slot, [[3, 4, 2, 0, 1], [4, 3, 2, 1, 0]])
    assert found.policy == "mine"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1, 0, 2]] * 3, "ranks of different slots"),
        ([[0, 0, 2]] * 3, "not a permutation"),
        ([[0, 1, 2]] * 2, "not a permutation"),
    ],
)
def test_impossible_labels_are_refused(labels: list[list[int]], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        relabelled(chance_plan(0, slots=(4, 3, 4)), np.array(labels))


def test_who_may_stand_for_whom() -> None:
    plan = chance_plan(0, slots=(3, 3, 2, 2))
    assert freedom(plan, uniform(4, 4, 3)).kinds.tolist() == [1, 1, 0, 0]
    even = chance_plan(0, slots=(2, 2, 2, 2))
    assert set(freedom(even, uniform(4, 2, 2)).kinds.tolist()) == {0}
    assert freedom(even, uniform(4, 2, 2), inside_nodes=True).kinds.tolist() == [0, 0, 1, 1]
    uneven = Topology(
        node_of_rank=np.zeros(4, np.int64), slots_per_rank=np.full(4, 2), speed=np.array([1.0, 1.0, 0.5, 1.0])
    )
    assert freedom(even, uneven).kinds.tolist() == [1, 1, 0, 1]
    with pytest.raises(PlanError, match="plan has 4 ranks, the cluster 8"):
        freedom(even, uniform(8, 8, 2))
