"""What is left of a plan, and its repair, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.migration import migration
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.survivors import Survivors, repair, surviving_ranks, survivors, topology_of

PLAN = Plan(
    expert_of_slot=np.array([[0, 1, 2, 3, 0, 1, 4, 0], [0, 1, 2, 0, 3, 2, 4, 1]]),
    slots_per_rank=np.array([2, 2, 2, 2]),
    experts=5,
    policy="eplb",
)
EVEN: FloatArray = np.ones((2, 5))


def left(*lost: int, plan: Plan = PLAN) -> Survivors:
    return survivors(plan, surviving_ranks(plan.ranks, lost))


def rows(plan: Plan) -> Any:
    return plan.expert_of_slot.tolist()


def test_ranks_are_renumbered_in_order() -> None:
    found = left(1)
    assert found.old_rank.tolist() == [0, 2, 3]
    assert found.slots_per_rank.tolist() == [2, 2, 2]
    assert found.expert_of_slot.tolist() == [[0, 1, 0, 1, 4, 0], [0, 1, 3, 2, 4, 1]]
    assert np.argwhere(found.lost).tolist() == [[0, 2], [0, 3]]
    assert found.held[1].sum(axis=1).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ((4,), "there is no rank 4 — the plan has 0 to 3"),
        ((-1,), "there is no rank -1"),
        ((1, 1), "rank 1 is named twice"),
        ((0, 1, 2, 3), "no rank is left"),
    ],
)
def test_ranks_that_cannot_be_lost(lost: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        surviving_ranks(4, lost)


def test_the_cluster_of_the_survivors() -> None:
    whole = Topology(
        node_of_rank=np.array([0, 0, 1, 2, 2]),
        slots_per_rank=np.array([2, 3, 4, 5, 6]),
        speed=np.array([1.0, 0.5, 1.0, 2.0, 1.0]),
        profile="h20",
        hbm_bytes=7,
    )
    found = topology_of(whole, surviving_ranks(5, (0, 2)))
    assert found.node_of_rank.tolist() == [0, 1, 1]
    assert found.slots_per_rank.tolist() == [3, 5, 6] and found.speed.tolist() == [0.5, 2.0, 1.0]
    assert (found.profile, found.hbm_bytes) == ("h20", 7)
    assert topology_of(whole, surviving_ranks(5, (0, 2)), 9).slots_per_rank.tolist() == [9, 9, 9]


def test_nothing_lost_is_nothing_moved() -> None:
    found = left(2)
    assert not found.lost[0].any()
    plan = repair(found, uniform(3, 3, 2), EVEN)
    assert rows(plan)[0] == found.expert_of_slot[0].tolist()


def test_lost_experts_replace_redundant_ones() -> None:
    plan = repair(left(1), uniform(3, 3, 2), EVEN)
    assert plan.policy == "repair"
    # Expert 0 has three slots and 1 has two, which become 2 of one and 1 of the other, or 1 and 2; the rest stays.
    kept = [new == old for new, old in zip(rows(plan)[0], [0, 1, 0, 1, 4, 0], strict=True)]
    assert kept.count(False) == 2 and kept[4]
    assert set(rows(plan)[0]) == {0, 1, 2, 3, 4}
    assert rows(plan)[1] == [0, 1, 3, 2, 4, 1]


def test_victims_are_those_that_leave_the_busiest_rank_lowest() -> None:
    """The lost expert of 6 may replace a replica of 0 on either rank: the other of rank 0 is light, that of 1 heavy."""
    plan = Plan(
        expert_of_slot=np.array([[0, 1, 0, 2, 3, 3]]), slots_per_rank=np.array([2, 2, 2]), experts=4, policy="hand"
    )
    load = np.array([[2.0, 1.0, 9.0, 6.0]])
    assert rows(repair(left(2, plan=plan), uniform(2, 2, 2), load)) == [[3, 1, 0, 2]]
    # A rank of twice the speed is less busy with the same.
    fast = replace(uniform(2, 2, 2), speed=np.array([1.0, 4.0]))
    assert rows(repair(left(2, plan=plan), fast, load)) == [[0, 1, 3, 2]]


def test_free_slots_come_before_redundant_ones() -> None:
    """Without redundancy ranks use more of the slots that they have."""
    plan = Plan(
        expert_of_slot=np.array([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]),
        slots_per_rank=np.array([2, 2, 2]),
        experts=6,
        policy="contiguous",
    )
    found = repair(left(1, plan=plan), uniform(2, 2, 4), np.ones((2, 6)))
    assert found.slots_per_rank.tolist() == [3, 3]
    assert sorted(rows(found)[0]) == [0, 1, 2, 3, 4, 5]
    assert rows(found)[0][:2] == [0, 1] and rows(found)[0][3:5] == [4, 5]


def test_moves_are_counted_against_what_is_held() -> None:
    found = left(1)
    plan = repair(found, uniform(3, 3, 2), EVEN)
    said: dict[str, Any] = {
        "expert_bytes": 10, "node_of_rank": np.zeros(3, np.int64), "nvlink_bytes_per_s": 100.0,
        "network_bytes_per_s": 10.0,
    }  # fmt: skip
    moved = migration(plan, plan, held=found.held, **said)
    assert (moved.moves, moved.cross_node_moves, moved.bytes) == (2, 2, 20)
    assert migration(plan, plan, **said).moves == 0


def test_too_few_slots() -> None:
    with pytest.raises(
        UsageError, match="the 2 ranks that are left have 4 slots, too few for 5 experts — give --slots"
    ):
        repair(left(0, 1), uniform(2, 2, 2), EVEN)
    with pytest.raises(UsageError, match="rank 1 holds 2 experts per layer — give 2 or more"):
        left(0).require_room(replace(uniform(3, 3, 9), slots_per_rank=np.array([1, 9, 9])))
