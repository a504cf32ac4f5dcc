"""Compiled greedy kernels against the specification: every slot and every count equal, whatever the loads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import FloatArray, IntArray, frozen
from easybalance_sim.kernels import numba_greedy, reference_greedy


def check_global(weight: object, slots_per_rank: object, speed: FloatArray | None = None) -> None:
    arguments = (frozen(weight, np.float64), frozen(slots_per_rank, np.int64), speed)
    compiled, specified = (module.greedy(*arguments) for module in (numba_greedy, reference_greedy))
    assert compiled.dtype == specified.dtype == np.int32
    assert compiled.tolist() == specified.tolist()


def check_hierarchical(
    weight: object, groups: int, node_of_rank: object, slots_per_rank: object, speed: FloatArray | None = None
) -> None:
    loads, nodes = frozen(weight, np.float64), frozen(node_of_rank, np.int64)
    slots = frozen(slots_per_rank, np.int64)
    compiled, specified = (
        module.greedy_hierarchical(loads, groups, nodes, slots, speed) for module in (numba_greedy, reference_greedy)
    )
    assert compiled.dtype == specified.dtype == np.int32
    assert compiled.tolist() == specified.tolist()


@pytest.mark.parametrize(
    ("experts", "slots_per_rank"),
    [
        (1, [1]),
        (5, [5]),
        (32, [5] * 8),
        (16, [6] * 3),
        (40, [2] * 21),
        (256, [9] * 32),
        (64, [3, 9, 1, 20, 30, 1, 1, 5]),
        (5, [1, 1, 1, 5]),
        (3, [3, 3, 3, 1]),
    ],
)
@pytest.mark.parametrize("kind", ["random", "zero", "equal", "one_hot", "zipf", "half_zero"])
def test_greedy(experts: int, slots_per_rank: list[int], kind: str) -> None:
    rng = np.random.default_rng(experts)
    loads = {
        "random": rng.lognormal(3, 1.5, (3, experts)),
        "zero": np.zeros((1, experts)),
        "equal": np.full((1, experts), 3.0),
        "one_hot": np.eye(experts)[:2] * 100,
        "zipf": 1000.0 / np.arange(1, experts + 1)[None],
        "half_zero": rng.integers(0, 2, (2, experts)) * rng.lognormal(3, 1, (2, experts)),
    }[kind]
    check_global(loads, slots_per_rank)


def test_no_layers() -> None:
    check_global(np.zeros((0, 4)), [2, 2, 1])


@st.composite
def small_loads(draw: st.DrawFn, experts: int) -> FloatArray:
    """One layer: small integers tie a lot, floats and huge ranges do not."""
    element = draw(
        st.sampled_from([st.integers(0, 4), st.floats(0, 1e6, width=32), st.integers(0, 10).map(lambda n: 4**n)])
    )
    return np.array([draw(st.lists(element, min_size=experts, max_size=experts))], np.float64)


@st.composite
def ragged(draw: st.DrawFn) -> tuple[FloatArray, list[int]]:
    slots = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    experts = draw(st.integers(max(slots), sum(slots)))
    return draw(small_loads(experts)), slots


@settings(max_examples=300, deadline=None)
@given(ragged())
def test_greedy_on_ragged_slots(case: tuple[FloatArray, list[int]]) -> None:
    check_global(*case)


@settings(max_examples=100, deadline=None)
@given(ragged(), st.integers(1, 6), st.integers(0, 12))
def test_replicate(case: tuple[FloatArray, list[int]], cap: int, spare: int) -> None:
    weight = frozen(case[0][0])
    compiled, specified = (
        module.replicate(weight, len(weight) + spare, cap) for module in (numba_greedy, reference_greedy)
    )
    assert compiled.dtype == specified.dtype == np.int64
    assert compiled.tolist() == specified.tolist()


@st.composite
def nodes_and_groups(draw: st.DrawFn) -> tuple[FloatArray, int, list[int], list[int]]:
    """Ranks of a node need not be neighbours, and may differ in slots."""
    nodes, groups_per_node, size = (draw(st.integers(1, 3)) for _ in range(3))
    share = groups_per_node * size
    ranks_per_node = draw(st.integers(1, 3))
    node_of_rank = draw(st.permutations([n for n in range(nodes) for _ in range(ranks_per_node)]))
    slots = [draw(st.integers(-(-share // ranks_per_node), share)) for _ in node_of_rank]
    groups = nodes * groups_per_node
    return draw(small_loads(groups * size)), groups, node_of_rank, slots


@settings(max_examples=150, deadline=None)
@given(nodes_and_groups())
def test_greedy_hierarchical(case: tuple[FloatArray, int, list[int], list[int]]) -> None:
    check_hierarchical(*case)


def test_greedy_hierarchical_at_a_real_size() -> None:
    loads = np.random.default_rng(1).lognormal(5, 1, (2, 64))
    check_hierarchical(loads, 8, np.arange(16) // 4, np.full(16, 6))


def speeds(ranks: int) -> st.SearchStrategy[FloatArray]:
    """Few different ones, so that ranks tie; or any."""
    element = st.one_of(st.sampled_from([0.5, 1.0, 1.0]), st.floats(0.125, 4))
    return st.lists(element, min_size=ranks, max_size=ranks).map(np.array)


@settings(max_examples=200, deadline=None)
@given(ragged(), st.data())
def test_greedy_on_uneven_speeds(case: tuple[FloatArray, list[int]], data: st.DataObject) -> None:
    check_global(*case, speed=data.draw(speeds(len(case[1]))))


@settings(max_examples=100, deadline=None)
@given(nodes_and_groups(), st.data())
def test_greedy_hierarchical_on_uneven_speeds(
    case: tuple[FloatArray, int, list[int], list[int]], data: st.DataObject
) -> None:
    check_hierarchical(*case, speed=data.draw(speeds(len(case[2]))))


def test_inputs_are_left_alone() -> None:
    weight: FloatArray = np.array([[9.0, 1.0, 1.0]])
    slots: IntArray = np.array([3, 2])
    check_global(weight, slots)
    assert weight.tolist() == [[9.0, 1.0, 1.0]]
    assert slots.tolist() == [3, 2]
