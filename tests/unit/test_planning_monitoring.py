"""Where the load of all traffic lies."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.monitoring import entropy, load_section, replica_split
from tests.unit.test_replay_outcome import outcome

PLAN = Plan(
    expert_of_slot=np.array([[0, 1, 0, 2], [0, 1, 2, 2]]), slots_per_rank=np.array([2, 2]), experts=3, policy="by hand"
)
SLOTS = np.array([[30, 20, 10, 40], [5, 15, 0, 0]])
EXPERTS = np.array([[40, 20, 40], [5, 15, 0]])
ONE = outcome(
    plan=PLAN, tokens=100, slot_tokens=SLOTS, expert_tokens=EXPERTS, node_pairs=np.array([[150, 50], [25, 75]])
)


def test_figures_by_hand() -> None:
    section = load_section((3, 5), np.array([0, 1]), ONE, ONE)
    assert (section["layers"], section["expert_imbalance"]) == ([3, 5], [1.2, 2.25])
    side = section["plan"]
    assert side == section["baseline"]
    assert side["node_imbalance"] == [1.0, 2.0]
    assert side["replica_imbalance"] == [1.6, 3.0]
    assert side["replicated_experts"] == [1, 1]
    assert side["replica_split"] == [1.5, None]
    assert side["copies_per_token"] == {"same_node": 2.25, "cross_node": 0.75}


def test_nodes_of_several_ranks_count_per_rank() -> None:
    three = Plan(expert_of_slot=np.array([[0, 1, 2]]), slots_per_rank=np.array([1, 1, 1]), experts=3, policy="by hand")
    one = outcome(plan=three, slot_tokens=np.array([[30, 30, 60]]), expert_tokens=np.array([[30, 30, 60]]))
    assert load_section((0,), np.array([0, 0, 1]), one, one)["plan"]["node_imbalance"] == [pytest.approx(4 / 3)]


def test_entropy_runs_from_none_to_even() -> None:
    tokens = np.array([[8, 0, 0, 0], [2, 2, 2, 2], [4, 4, 0, 0], [0, 0, 0, 0]])
    assert entropy(tokens) == pytest.approx([0, 1, 0.5, 1])
    assert entropy(np.array([[7]])) == pytest.approx([1])


def test_a_split_is_weighted_by_tokens() -> None:
    two = Plan(expert_of_slot=np.array([[0, 1, 0, 1]]), slots_per_rank=np.array([2, 2]), experts=2, policy="by hand")
    one = outcome(plan=two, slot_tokens=np.array([[90, 5, 0, 5]]), expert_tokens=np.array([[90, 10]]))
    assert replica_split(one) == [pytest.approx((2 * 90 + 1 * 10) / 100)]
