"""Placements from the counts of earlier steps."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.policies import NotApplicable
from easybalance_sim.simulate.steps.placements import contiguous, planned, stacked
from tests.staggering_steps import chance_steps

STEPS = chance_steps(3, steps=120, tokens=20)
PAST = STEPS.between(0, 72)


def test_contiguous_is_in_order() -> None:
    assert contiguous(2, 6, 3).expert_of_slot.tolist() == [[0, 1, 2, 3, 4, 5]] * 2
    assert contiguous(1, 5, 2).slots_per_rank.tolist() == [3, 2]


def test_stacked_puts_the_hottest_together() -> None:
    counts = np.array([[[1, 4, 2, 0]], [[2, 1, 2, 1]]])
    assert stacked(counts, 2).expert_of_slot.tolist() == [[1, 2, 0, 3]]


def test_plans_are_made_from_the_past_alone() -> None:
    one, again = (planned("window_search", PAST, 4, 3, proposals=2000, window=4) for _ in range(2))
    np.testing.assert_array_equal(one.expert_of_slot, again.expert_of_slot)
    assert (one.ranks, one.slots, one.policy) == (4, 12, "window_search")
    greedy = planned("eplb", PAST, 4, 3, topology=uniform(4, 2, 3))
    assert greedy.replicas.min() >= 1 and greedy.slots == 12
    with pytest.raises(NotApplicable, match="at least 8"):
        planned("window_search", PAST, 4, 3)
