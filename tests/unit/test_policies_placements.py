"""What each policy places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.plan.migration import resident
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, Problem
from tests.window_problems import problem_of, topic_windows


def problem(
    loads: Sequence[Sequence[float]], topology: Topology, groups: int = 1, current: Plan | None = None
) -> Problem:
    forecast = np.array(loads)
    return Problem(
        forecast=forecast, windows=np.zeros((0, *forecast.shape)), topology=topology, groups=groups, current=current
    )


def ragged(*slots: int, node_of_rank: Sequence[int] = ()) -> Topology:
    nodes = np.array(node_of_rank or [0] * len(slots))
    return Topology(node_of_rank=nodes, slots_per_rank=np.array(slots), speed=np.ones(len(slots)))


def by_rank(plan: Plan, layer: int = 0) -> list[list[int]]:
    bounds = plan.slot_start[1:-1]
    return [held.tolist() for held in np.split(plan.expert_of_slot[layer], bounds)]


def rank_loads(plan: Plan, loads: Sequence[float]) -> list[float]:
    unit = np.array(loads) / plan.replicas[0]
    return [float(unit[held].sum()) for held in by_rank(plan)]


HOT = (100.0, 55.0, 25.0, 20.0)


def test_eplb_worked_example_gives_a_second_replica_to_the_two_hot_experts() -> None:
    plan = policies.make("eplb", problem([HOT], uniform(2, 2, 3)))
    assert plan.replicas.tolist() == [[2, 2, 1, 1]]
    assert sorted(rank_loads(plan, HOT)) == [97.5, 102.5]


def test_eplb_places_every_layer_on_its_own() -> None:
    plan = policies.make("eplb", problem([HOT, HOT[::-1]], uniform(2, 2, 3)))
    assert plan.replicas.tolist() == [[2, 2, 1, 1], [1, 1, 2, 2]]


def test_eplb_uses_ragged_slots() -> None:
    plan = policies.make("eplb", problem([HOT], ragged(1, 2, 4)))
    assert plan.slots_per_rank.tolist() == [1, 2, 4]
    assert sorted(by_rank(plan)[2]) == [0, 1, 2, 3]


def test_eplb_no_redundancy_balances_single_replicas() -> None:
    loads = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]
    plan = policies.make("eplb_no_redundancy", problem([loads], uniform(3, 3, 5)))
    assert plan.slots_per_rank.tolist() == [3, 2, 2]
    assert plan.replicas.tolist() == [[1] * 7]
    assert by_rank(plan) == [[0, 5, 6], [1, 4], [2, 3]]


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (uniform(2, 2, 5), [[0, 1, 2, 3], [4, 5, 6]]),
        (uniform(3, 3, 3), [[0, 1, 2], [3, 4], [5, 6]]),
        (uniform(1, 1, 7), [[0, 1, 2, 3, 4, 5, 6]]),
        (ragged(1, 6, 2), [[0], [1, 2, 3, 4], [5, 6]]),
        (ragged(1, 7, 7), [[0], [1, 2, 3], [4, 5, 6]]),
        (ragged(2, 5, 5), [[0, 1], [2, 3, 4], [5, 6]]),
    ],
)
def test_contiguous_keeps_order_and_fills_evenly(topology: Topology, expected: list[list[int]]) -> None:
    assert by_rank(policies.make("contiguous", problem([[1.0] * 7], topology))) == expected


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (uniform(2, 2, 5), [[0, 2, 4, 6], [1, 3, 5]]),
        (uniform(3, 3, 3), [[0, 3, 6], [1, 4], [2, 5]]),
        (ragged(1, 6, 2), [[0], [1, 3, 5, 6], [2, 4]]),
    ],
)
def test_round_robin_deals_experts_to_ranks(topology: Topology, expected: list[list[int]]) -> None:
    assert by_rank(policies.make("round_robin", problem([[1.0] * 7], topology))) == expected


def test_contiguous_gives_every_rank_work_when_there_are_more_ranks_than_experts() -> None:
    assert by_rank(policies.make("contiguous", problem([[1.0] * 3], uniform(5, 4, 2)))) == [[0], [1], [2], [0], [1]]


def test_a_search_without_redundancy_is_one_with_fewer_slots() -> None:
    windows = topic_windows(0, 64)
    spare = problem_of(windows, uniform(8, 8, 5), effort=Effort(proposals=20_000))
    plan = policies.make("window_search_no_redundancy", spare)
    assert (plan.replicas == 1).all() and plan.slots_per_rank.tolist() == [4] * 8
    tight = problem_of(windows, uniform(8, 8, 4), effort=Effort(proposals=20_000))
    np.testing.assert_array_equal(plan.expert_of_slot, policies.make("window_search", tight).expert_of_slot)
    with pytest.raises(NotApplicable, match="no slot is redundant"):
        policies.make("window_search_no_redundancy", tight)


@pytest.mark.parametrize("name", ["round_robin", "eplb_no_redundancy"])
def test_single_replicas_do_not_reach_more_ranks_than_experts(name: str) -> None:
    with pytest.raises(NotApplicable, match=r"3 experts .* 4 ranks"):
        policies.make(name, problem([[1.0] * 3], uniform(4, 4, 1)))


def in_force(slots: Sequence[int]) -> Plan:
    return Plan(
        expert_of_slot=np.arange(sum(slots), dtype=np.int32)[None] % 4,
        slots_per_rank=np.array(slots),
        experts=4,
        policy="eplb",
    )


def test_keep_returns_the_plan_in_force() -> None:
    current = in_force([2, 3])
    plan = policies.make("keep", problem([HOT], uniform(2, 2, 3), current=current))
    assert plan.policy == "keep"
    assert by_rank(plan) == by_rank(current)


@pytest.mark.parametrize(
    ("current", "reason"),
    [
        (None, "no plan is in force"),
        (in_force([2, 2, 2]), r"\(1, 4, 3\), the trace and cluster \(1, 4, 2\)"),
        (in_force([4, 2]), "more slots than a rank has"),
    ],
)
def test_keep_says_why_it_cannot(current: Plan | None, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        policies.make("keep", problem([HOT], uniform(2, 2, 3), current=current))


def test_after_a_loss_of_ranks_the_plan_in_force_is_repaired_not_kept() -> None:
    current = in_force([2, 3])
    whole = problem([HOT], uniform(2, 2, 3), current=current)
    with pytest.raises(NotApplicable, match="no rank was lost"):
        policies.make("repair", whole)
    broken = replace(whole, held=resident(current))
    with pytest.raises(NotApplicable, match="ranks were lost: repair is what"):
        policies.make("keep", broken)
    plan = policies.make("repair", broken)
    assert (plan.policy, by_rank(plan)) == ("repair", by_rank(current))


def test_hierarchical_keeps_each_group_inside_one_node() -> None:
    # Heaviest group with the lightest one: {0, 1} and {6, 7} on one node.
    loads = [9.0, 8.0, 6.0, 6.0, 5.0, 5.0, 2.0, 1.0]
    plan = policies.make("eplb_hierarchical", problem([loads], uniform(4, 2, 3), groups=4))
    ranks = by_rank(plan)
    assert {*ranks[0], *ranks[1]} == {0, 1, 6, 7}
    assert {*ranks[2], *ranks[3]} == {2, 3, 4, 5}
    assert plan.replicas.tolist() == [[2, 2, 2, 2, 1, 1, 1, 1]]


def test_hierarchical_follows_the_node_of_each_rank() -> None:
    topology = ragged(2, 3, 3, 2, node_of_rank=[1, 0, 1, 0])
    plan = policies.make("eplb_hierarchical", problem([[4.0, 3.0, 2.0, 2.0, 1.0, 1.0]], topology, groups=2))
    ranks = by_rank(plan)
    assert {*ranks[1], *ranks[3]} == {0, 1, 2}
    assert {*ranks[0], *ranks[2]} == {3, 4, 5}


@pytest.mark.parametrize(
    ("topology", "groups", "reason"),
    [
        (uniform(4, 4, 3), 4, "one node"),
        (uniform(4, 2, 3), 1, "no expert groups"),
        (uniform(6, 2, 2), 4, "4 expert groups do not divide over 3 nodes"),
        (uniform(3, 2, 4), 4, "nodes differ"),
        (ragged(2, 2, 2, 3, node_of_rank=[0, 0, 1, 1]), 4, "nodes differ"),
        (ragged(5, 3, 4, 4, node_of_rank=[0, 0, 1, 1]), 4, "5 slots would hold an expert twice"),
    ],
)
def test_hierarchical_says_why_it_cannot(topology: Topology, groups: int, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        policies.make("eplb_hierarchical", problem([[1.0] * 8], topology, groups))


KINDS = ("random", "zero", "equal", "one_hot")
# Without any traffic, or with one expert that all of it goes to, windows cannot differ; some policies want tokens, one
# a loss of ranks.
REFUSED = {(name, kind) for name in ("eplb_relabelled", "traffic_search", "repair") for kind in KINDS}


@pytest.mark.parametrize("name", policies.names())
@pytest.mark.parametrize("kind", KINDS)
def test_every_policy_serves_all_experts_without_duplicates(name: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    loads = {
        "random": rng.lognormal(3, 1, (2, 16)),
        "zero": np.zeros((2, 16)),
        "equal": np.full((2, 16), 7.0),
        "one_hot": np.eye(16)[:2] * 1000,
    }[kind]
    windows = rng.poisson(loads / 4 * rng.gamma(2.0, 0.5, (12, 2, 16)))
    given = Problem(forecast=loads, windows=windows, topology=uniform(8, 4, 3), groups=4, effort=Effort(proposals=5000))
    given = replace(given, current=policies.make("contiguous", given))
    try:
        plan = policies.make(name, given)
    except NotApplicable as reason:
        assert (name, kind) in REFUSED, reason
        return
    assert (name, kind) not in REFUSED
    assert (plan.replicas >= 1).all()
    assert (plan.replicas <= 8).all()
    for layer in range(2):
        assert all(len(set(held)) == len(held) for held in by_rank(plan, layer))
    assert (policies.make(name, given).expert_of_slot == plan.expert_of_slot).all()
