from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.plan.lint import ERROR, WARNING, Finding, lint
from easybalance_sim.plan.plan import Plan


def _plan(rows: list[list[int]], slots_per_rank: list[int], experts: int) -> Plan:
    return Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array(slots_per_rank), experts=experts, policy="p")


def test_clean_plan_has_no_findings() -> None:
    assert lint(_plan([[0, 1, 1, 2]], [2, 2], 3), uniform(2, 2, 2)) == []


def test_duplicate_on_a_rank_names_layer_and_both_slots() -> None:
    findings = lint(_plan([[0, 1, 2, 1], [0, 1, 2, 2]], [2, 2], 3))
    assert findings == [Finding(level=ERROR, message="expert 2 is already on rank 1 (slot 2)", layer=1, slot=3)]


def test_three_copies_on_one_rank_are_two_findings() -> None:
    duplicates = [f for f in lint(_plan([[0, 0, 0, 1, 1, 2]], [3, 3], 3)) if "already" in f.message]
    assert [f.slot for f in duplicates] == [1, 2, 4]


def test_more_replicas_than_ranks() -> None:
    findings = lint(_plan([[0, 1, 0, 0]], [2, 2], 2))
    assert Finding(level=ERROR, message="expert 0 has 3 replicas on 2 ranks", layer=0, slot=0) in findings


def test_rank_count_must_be_the_clusters() -> None:
    findings = lint(_plan([[0, 1]], [1, 1], 2), uniform(4, 4, 1))
    assert [f.message for f in findings] == ["the plan is for 2 ranks, the cluster has 4"]


def test_slots_beyond_the_rank_are_named() -> None:
    topology = Topology(node_of_rank=np.zeros(3, int), slots_per_rank=np.array([2, 1, 2]), speed=np.ones(3))
    findings = lint(_plan([[0, 1, 2, 0, 1, 2]], [2, 2, 2], 3), topology)
    assert findings == [Finding(level=ERROR, message="rank 1 holds 2 slots, the cluster gives it 1", slot=3)]


def test_a_plan_may_leave_slots_empty() -> None:
    assert lint(_plan([[0, 1]], [1, 1], 2), uniform(2, 2, 2)) == []


@pytest.mark.parametrize(
    ("slots_per_rank", "experts", "message"),
    [([2, 1], 3, "slots per rank differ"), ([16384] * 2, 32768, "32768 slots"), ([1025], 1025, "1025 experts")],
)
def test_engine_limits_are_warnings(slots_per_rank: list[int], experts: int, message: str) -> None:
    findings = lint(_plan([list(range(experts))], slots_per_rank, experts))
    assert {f.level for f in findings} == {WARNING}
    assert any(message in f.message for f in findings)
