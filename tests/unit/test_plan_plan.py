from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.errors import PlanError
from easybalance_sim.plan.plan import Plan


def _plan(rows: list[list[int]], slots_per_rank: list[int], experts: int) -> Plan:
    return Plan(
        expert_of_slot=np.array(rows), slots_per_rank=np.array(slots_per_rank), experts=experts, policy="by hand"
    )


def test_shape_is_derived() -> None:
    plan = _plan([[0, 1, 2, 0, 1], [2, 1, 0, 1, 2]], [2, 3], 3)
    assert (plan.layers, plan.slots, plan.ranks, plan.redundant_slots) == (2, 5, 2, 2)
    assert plan.rank_of_slot.tolist() == [0, 0, 1, 1, 1]
    assert plan.slot_start.tolist() == [0, 2, 5]


def test_replica_lists() -> None:
    plan = _plan([[0, 1, 2, 0, 1], [2, 1, 0, 1, 2]], [2, 3], 3)
    assert plan.replicas.tolist() == [[2, 2, 1], [1, 2, 2]]
    assert plan.replica_start.tolist() == [[0, 2, 4, 5], [0, 1, 3, 5]]
    assert plan.replica_slot.tolist() == [[0, 3, 1, 4, 2], [2, 1, 3, 0, 4]]


def test_arrays_are_read_only_copies() -> None:
    rows, per_rank = np.array([[0, 1]], np.int32), np.array([1, 1])
    plan = Plan(expert_of_slot=rows, slots_per_rank=per_rank, experts=2, policy="p")
    rows[0, 0] = 1
    assert plan.expert_of_slot.tolist() == [[0, 1]]
    for array in (plan.expert_of_slot, plan.slots_per_rank, plan.replicas, plan.replica_slot, plan.replica_start):
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("rows", "slots_per_rank", "experts", "message"),
    [
        ([[0, 1, 2]], [2, 2], 3, r"shape \(1, 3\), slots per rank sum to 4"),
        ([[0, 3]], [1, 1], 2, r"layer row 0, slot 1: expert 3 is not in 0\.\.1"),
        ([[0, 1], [0, -1]], [1, 1], 2, "layer row 1, slot 1: expert -1"),
        ([[0, 1], [1, 1]], [1, 1], 2, "layer row 1: expert 0 has no replica — give it a slot"),
        ([[0, 1]], [3, -1], 2, "every rank must have at least one slot"),
    ],
)
def test_broken_placements_are_refused(
    rows: list[list[int]], slots_per_rank: list[int], experts: int, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        _plan(rows, slots_per_rank, experts)


def test_flat_array_is_refused() -> None:
    with pytest.raises(PlanError, match="shape"):
        Plan(expert_of_slot=np.array([0, 1]), slots_per_rank=np.array([2]), experts=2, policy="p")
