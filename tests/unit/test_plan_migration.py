from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.errors import PlanError
from easybalance_sim.plan.migration import Migration, migration, moving_slots
from easybalance_sim.plan.plan import Plan


def _plan(rows: list[list[int]], slots_per_rank: list[int], experts: int) -> Plan:
    return Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array(slots_per_rank), experts=experts, policy="p")


def _cost(old: Plan, new: Plan, nodes: list[int], **changes: Any) -> Migration:
    settings = {"expert_bytes": 100, "nvlink_bytes_per_s": 1000.0, "network_bytes_per_s": 100.0, **changes}
    return migration(old, new, node_of_rank=np.array(nodes), **settings)


def test_same_plan_costs_nothing() -> None:
    plan = _plan([[0, 1, 2, 3]], [2, 2], 4)
    assert _cost(plan, plan, [0, 0]) == Migration(moves=0, cross_node_moves=0, bytes=0, seconds=0.0)


def test_changing_slots_inside_a_rank_is_free() -> None:
    assert _cost(_plan([[0, 1, 2, 3]], [2, 2], 4), _plan([[1, 0, 3, 2]], [2, 2], 4), [0, 1]).moves == 0


def test_swap_on_one_node_uses_nvlink() -> None:
    cost = _cost(_plan([[0, 1]], [1, 1], 2), _plan([[1, 0]], [1, 1], 2), [0, 0])
    assert cost == Migration(moves=2, cross_node_moves=0, bytes=200, seconds=0.1)


def test_swap_between_nodes_uses_the_network() -> None:
    cost = _cost(_plan([[0, 1]], [1, 1], 2), _plan([[1, 0]], [1, 1], 2), [0, 1])
    assert cost == Migration(moves=2, cross_node_moves=2, bytes=200, seconds=1.0)


def test_the_same_node_is_the_preferred_source() -> None:
    old = _plan([[0, 1, 0, 1]], [1, 1, 1, 1], 2)
    cost = _cost(old, _plan([[1, 0, 0, 1]], [1, 1, 1, 1], 2), [0, 0, 1, 1])
    assert (cost.moves, cost.cross_node_moves) == (2, 0)


def test_slowest_rank_adds_both_links_over_all_layers() -> None:
    old = _plan([[0, 1, 2], [0, 1, 2]], [1, 1, 1], 3)
    new = _plan([[1, 0, 2], [2, 1, 0]], [1, 1, 1], 3)
    cost = _cost(old, new, [0, 0, 1])
    assert (cost.moves, cost.cross_node_moves) == (4, 2)
    assert cost.seconds == pytest.approx(0.1 + 1.0)


def test_redundancy_may_change() -> None:
    lean, rich = _plan([[0, 1, 2, 3]], [2, 2], 4), _plan([[0, 1, 2, 2, 3, 0]], [3, 3], 4)
    assert _cost(lean, rich, [0, 0]).moves == 2
    assert _cost(rich, lean, [0, 0]).moves == 0
    assert moving_slots(lean, rich).tolist() == [[False, False, True, False, False, True]]


@pytest.mark.parametrize(
    ("new", "nodes", "message"),
    [
        (_plan([[0, 1], [0, 1]], [1, 1], 2), [0, 0], "has 1 layers, the new one 2"),
        (_plan([[0, 1, 2, 0]], [2, 2], 3), [0, 0], "has 2 experts, the new one 3"),
        (_plan([[0, 1]], [2], 2), [0], "has 2 ranks, the new one 1"),
        (_plan([[0, 1]], [1, 1], 2), [0, 0, 0], "the cluster has 3 ranks, the plans 2"),
    ],
)
def test_plans_that_cannot_be_compared_are_refused(new: Plan, nodes: list[int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        _cost(_plan([[0, 1]], [1, 1], 2), new, nodes)


def test_bandwidth_that_is_needed_must_be_positive() -> None:
    old, new = _plan([[0, 1]], [1, 1], 2), _plan([[1, 0]], [1, 1], 2)
    assert _cost(old, new, [0, 0], network_bytes_per_s=0.0).moves == 2
    with pytest.raises(PlanError, match="network bandwidth is 0"):
        _cost(old, new, [0, 1], network_bytes_per_s=0.0)


def _reference(old: Plan, new: Plan, nodes: list[int]) -> Migration:
    """The definition, slot by slot."""
    moves = cross = 0
    seconds = [0.0] * new.ranks
    for layer in range(new.layers):
        for slot, rank in enumerate(new.rank_of_slot.tolist()):
            holders = set(old.rank_of_slot[old.expert_of_slot[layer] == new.expert_of_slot[layer, slot]].tolist())
            if rank in holders:
                continue
            far = all(nodes[holder] != nodes[rank] for holder in holders)
            moves, cross = moves + 1, cross + far
            seconds[rank] += 100 / (100.0 if far else 1000.0)
    return Migration(moves=moves, cross_node_moves=cross, bytes=100 * moves, seconds=max(seconds))


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_equals_the_definition(seed: int, ranks: int, experts: int) -> None:
    rng = np.random.default_rng(seed)

    def draw() -> Plan:
        per_rank = rng.integers(1, 4, ranks) + experts // ranks
        spare = rng.integers(0, experts, int(per_rank.sum()) - experts)
        rows = [rng.permutation(np.concatenate([np.arange(experts), spare])).tolist() for _ in range(3)]
        return _plan(rows, per_rank.tolist(), experts)

    old, new, nodes = draw(), draw(), (np.arange(ranks) // 2).tolist()
    found, expected = _cost(old, new, nodes), _reference(old, new, nodes)
    assert (found.moves, found.cross_node_moves, found.bytes) == (
        expected.moves,
        expected.cross_node_moves,
        expected.bytes,
    )
    assert found.seconds == pytest.approx(expected.seconds)
