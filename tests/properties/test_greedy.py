"""What holds for every greedy plan: all experts served, no duplicates on a rank, optimal counts, bounded packing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.kernels import numba_greedy


def greedy(loads: object, slots_per_rank: object, speed: FloatArray | None = None) -> list[list[int]]:
    """Experts of each rank for one layer."""
    slots = frozen(slots_per_rank, np.int64)
    placed = numba_greedy.greedy(frozen(np.array([loads]), np.float64), slots, speed)[0]
    return [held.tolist() for held in np.split(placed, np.cumsum(slots)[:-1])]


def counts(ranks: list[list[int]], experts: int) -> IntArray:
    return np.bincount([e for held in ranks for e in held], minlength=experts)


def rank_loads(ranks: list[list[int]], loads: object) -> FloatArray:
    unit = np.array(loads, float) / counts(ranks, len(np.array(loads)))
    return np.array([unit[held].sum() for held in ranks])


@st.composite
def cluster(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Loads and ragged slots; experts anywhere between the widest rank and all slots."""
    slots = draw(st.lists(st.integers(1, 8), min_size=1, max_size=9))
    experts = draw(st.integers(max(slots), sum(slots)))
    element = draw(st.sampled_from([st.integers(0, 3), st.integers(0, 10).map(lambda n: 5**n), st.floats(0, 1e9)]))
    return draw(st.lists(element.map(float), min_size=experts, max_size=experts)), slots


@settings(max_examples=300, deadline=None)
@given(cluster())
@example(([0.0] * 4, [2, 2, 2]))
@example(([5.0] * 4, [4, 4, 1]))
@example(([100.0, 1.0, 1.0, 1.0, 1.0], [1, 1, 1, 5]))
@example(([1.0] * 3, [3, 3, 3]))
def test_every_plan_is_sound(case: tuple[list[float], list[int]]) -> None:
    loads, slots = case
    ranks = greedy(loads, slots)
    replicas = counts(ranks, len(loads))
    assert [len(held) for held in ranks] == slots
    assert all(len(set(held)) == len(held) for held in ranks)
    assert replicas.min() >= 1
    assert replicas.max() <= len(slots)
    assert greedy(loads, slots) == ranks


@settings(max_examples=100, deadline=None)
@given(cluster(), st.sampled_from([0.3, 0.7, 1.0, 3.0]))
def test_equal_speeds_are_no_speeds(case: tuple[list[float], list[int]], speed: float) -> None:
    loads, slots = case
    assert greedy(loads, slots, np.full(len(slots), speed)) == greedy(loads, slots)


@settings(max_examples=100, deadline=None)
@given(cluster(), st.data())
def test_every_plan_for_uneven_speeds_is_sound(case: tuple[list[float], list[int]], data: st.DataObject) -> None:
    loads, slots = case
    speed = data.draw(st.lists(st.floats(0.1, 4), min_size=len(slots), max_size=len(slots)))
    ranks = greedy(loads, slots, np.array(speed))
    assert [len(held) for held in ranks] == slots
    assert all(len(set(held)) == len(held) for held in ranks)
    assert counts(ranks, len(loads)).min() >= 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2, max_size=6))
def test_many_small_loads_are_shared_by_speed(seed: int, speed: list[float]) -> None:
    loads, pace = np.random.default_rng(seed).uniform(0.5, 1.5, 40 * len(speed)), np.array(speed)
    slots = np.maximum(1, (len(loads) * pace / pace.sum()).astype(int))
    slots[np.argsort(-pace, kind="stable")[: len(loads) - slots.sum()]] += 1
    busy = rank_loads(greedy(loads, slots, pace), loads) / pace
    assert busy.max() <= 1.15 * loads.sum() / pace.sum()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_distinct_loads_give_a_plan_that_ignores_expert_names(data: st.DataObject) -> None:
    # Powers of seven: no two experts ever tie, whatever their replica counts up to six.
    experts = data.draw(st.integers(3, 8))
    loads = 7.0 ** np.arange(experts)
    shuffled: IntArray = np.array(data.draw(st.permutations(range(experts))))
    slots = [3] * data.draw(st.integers(-(-experts // 3), 6))
    ranks = greedy(loads, slots)
    renamed = greedy(loads[shuffled], slots)
    assert [[int(shuffled[e]) for e in held] for held in renamed] == ranks


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=20), st.integers(0, 30), st.integers(1, 8))
def test_scaling_by_a_power_of_two_changes_nothing(loads: list[int], extra: int, ranks: int) -> None:
    slots = [min(len(loads), -(-(len(loads) + extra) // ranks))] * ranks
    if sum(slots) >= len(loads):
        assert greedy(np.array(loads) * 1024.0, slots) == greedy(loads, slots)


@settings(max_examples=60, deadline=None)
@given(cluster())
def test_equal_slots_reach_the_replica_counts_that_were_asked_for(case: tuple[list[float], list[int]]) -> None:
    loads, slots = case[0], [max(case[1])] * len(case[1])
    wanted = numba_greedy.replicate(frozen(loads, np.float64), sum(slots), len(slots))
    assert counts(greedy(loads, slots), len(loads)).tolist() == wanted.tolist()


def best_unit_load(loads: tuple[int, ...], slots: int, cap: int) -> float:
    vectors = itertools.product(range(1, cap + 1), repeat=len(loads))
    return min(max(w / c for w, c in zip(loads, v, strict=True)) for v in vectors if sum(v) == slots)


@pytest.mark.parametrize("cap", [2, 3, 9])
@pytest.mark.parametrize("experts", [1, 2, 3])
def test_replicate_is_optimal_on_all_small_instances(experts: int, cap: int) -> None:
    for loads in itertools.combinations_with_replacement(range(7), experts):
        for slots in range(experts, min(9, cap * experts) + 1):
            count = numba_greedy.replicate(frozen(loads, np.float64), slots, cap)
            assert count.sum() == slots
            assert count.max() <= cap
            assert (np.array(loads) / count).max() == best_unit_load(loads, slots, cap)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=4, max_size=5), st.integers(0, 5), st.integers(2, 6))
def test_replicate_is_optimal_on_larger_instances(loads: list[int], spare: int, cap: int) -> None:
    slots = min(9, len(loads) + spare, cap * len(loads))
    count = numba_greedy.replicate(frozen(loads, np.float64), slots, cap)
    assert (np.array(loads) / count).max() == best_unit_load(tuple(loads), slots, cap)


def test_replicate_spreads_spare_slots_of_experts_without_load() -> None:
    assert numba_greedy.replicate(frozen(np.zeros(3)), 7, 4).tolist() == [3, 2, 2]


def test_replicate_stops_at_the_cap() -> None:
    assert numba_greedy.replicate(frozen([9.0, 1.0]), 9, 3).tolist() == [3, 3]


def optimum(items: list[int], ranks: int, slots: int) -> int:
    """Smallest possible largest rank load, `slots` items per rank, by branch and bound."""
    ordered, best = sorted(items, reverse=True), sum(items)
    load, used = [0] * ranks, [0] * ranks

    def descend(at: int) -> None:
        nonlocal best
        if at == len(ordered):
            best = min(best, max(load))
            return
        tried = set()
        for rank in range(ranks):
            state = (load[rank], used[rank])
            if used[rank] == slots or state in tried or load[rank] + ordered[at] >= best:
                continue
            tried.add(state)
            load[rank], used[rank] = load[rank] + ordered[at], used[rank] + 1
            descend(at + 1)
            load[rank], used[rank] = state

    descend(0)
    return best


@st.composite
def packing(draw: st.DrawFn) -> tuple[list[int], int, int]:
    ranks, slots = draw(st.sampled_from([(2, 2), (2, 3), (2, 5), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3)]))
    top = draw(st.sampled_from([4, 13, 100]))
    return draw(st.lists(st.integers(0, top), min_size=ranks * slots, max_size=ranks * slots)), ranks, slots


@settings(max_examples=250, deadline=None)
@given(packing())
@example(([3, 3, 2, 2, 2, 0], 2, 3))
@example(([5, 5, 4, 4, 3, 3, 3, 0, 0], 3, 3))
def test_packing_stays_inside_the_lpt_bound(case: tuple[list[int], int, int]) -> None:
    """Graham's bound for heaviest-first scheduling, 4/3 - 1/(3R), with R machines of equal capacity.

    Graham, Bounds on multiprocessing timing anomalies, 1969; proven for three items per machine by Kellerer and
    Woeginger, A tight bound for 3-partitioning, 1993. Both examples reach it exactly.
    """
    items, ranks, slots = case
    loads = rank_loads(greedy(items, [slots] * ranks), items)
    assert loads.max() - loads.min() <= max(items)
    assert 3 * ranks * loads.max() <= (4 * ranks - 1) * optimum(items, ranks, slots)


@pytest.mark.parametrize(("items", "ranks"), [([3, 3, 2, 2, 2, 0], 2), ([5, 5, 4, 4, 3, 3, 3, 0, 0], 3)])
def test_the_lpt_bound_is_tight(items: list[int], ranks: int) -> None:
    loads: AnyArray = rank_loads(greedy(items, [3] * ranks), items)
    assert 3 * ranks * loads.max() == (4 * ranks - 1) * optimum(items, ranks, 3)


@pytest.mark.parametrize(
    ("loads", "slots", "expected"),
    [
        # Rank 1 holds expert 0 and has the only free slot: expert 1 moves there, expert 0 takes its place.
        ([1.0, 1.0], [1, 2], [[0], [0, 1]]),
        # Without load every choice ties, so rank 0 fills up first; of its experts 1 and 2 the first one moves.
        ([0.0, 0.0, 0.0], [2, 2], [[0, 2], [0, 1]]),
    ],
)
def test_clash_on_the_last_slot_is_repaired_by_a_move(
    loads: list[float], slots: list[int], expected: list[list[int]]
) -> None:
    assert greedy(loads, slots) == expected


def test_replica_that_no_rank_can_take_gives_its_slot_to_another_expert() -> None:
    # Three replicas of expert 0 are asked for, but rank 1 is full with an expert that rank 2 holds too.
    assert numba_greedy.replicate(frozen([3.0, 2.0, 1.0]), 6, 3).tolist() == [3, 2, 1]
    assert greedy([3.0, 2.0, 1.0], [2, 1, 3]) == [[2, 0], [1], [1, 0, 2]]


def test_load_of_given_up_replicas_counts_in_later_choices() -> None:
    # Experts 2 and 4 want more replicas than find a rank; their other replicas then carry more.
    ranks = greedy([5.0, 3.0, 21.0, 4.0, 21.0], [3, 4, 2, 5, 5, 1])
    assert ranks == [[2, 4, 3], [2, 4, 0, 1], [2, 4], [2, 4, 0, 3, 1], [2, 4, 1, 3, 0], [2]]


def test_each_slot_given_away_counts_for_the_next_one() -> None:
    # Ranks 2 and 3 have a slot left over: the first goes to expert 1 (3.0 against 2.0 of expert 3), which then has 1.5
    # per replica, so the second goes to expert 3.
    ranks = greedy([12.0, 3.0, 14.0, 2.0, 13.0, 6.0], [5, 1, 5, 5])
    assert ranks == [[2, 4, 1, 0, 3], [2], [2, 4, 5, 0, 1], [2, 4, 5, 0, 3]]
