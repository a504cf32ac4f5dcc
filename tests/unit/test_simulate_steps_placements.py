"""Placements from the counts of earlier steps."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.policies import NotApplicable
from easybalance_sim.simulate.replica_choice.alternatives import Lossless, by_chance, lossless, replanned
from easybalance_sim.simulate.steps.placements import contiguous, planned, stacked, windows_of
from easybalance_sim.simulate.steps.recorded import rank_loads
from tests.staggering_steps import chance_steps

STEPS = chance_steps(3, steps=120, tokens=20)
PAST, NOW = STEPS.between(0, 72), STEPS.between(72, 120)


def test_contiguous_is_in_order() -> None:
    assert contiguous(2, 6, 3).expert_of_slot.tolist() == [[0, 1, 2, 3, 4, 5]] * 2
    assert contiguous(1, 5, 2).slots_per_rank.tolist() == [3, 2]


def test_stacked_puts_the_hottest_together() -> None:
    counts = np.array([[[1, 4, 2, 0]], [[2, 1, 2, 1]]])
    assert stacked(counts, 2).expert_of_slot.tolist() == [[1, 2, 0, 3]]


def test_windows_end_with_the_newest_step() -> None:
    counts = np.arange(1, 8)[:, None, None]
    assert windows_of(counts, 3).ravel().tolist() == [9, 18]
    assert windows_of(counts, 100).ravel().tolist() == [28]


def test_plans_are_made_from_the_past_alone() -> None:
    one, again = (planned("window_search", PAST, 4, 3, proposals=2000, window=4) for _ in range(2))
    np.testing.assert_array_equal(one.expert_of_slot, again.expert_of_slot)
    assert (one.ranks, one.slots, one.policy) == (4, 12, "window_search")
    greedy = planned("eplb", PAST, 4, 3, topology=uniform(4, 2, 3))
    assert greedy.replicas.min() >= 1 and greedy.slots == 12
    with pytest.raises(NotApplicable, match="at least 8"):
        planned("window_search", PAST, 4, 3)


def test_replanned_follows_its_past_with_a_delay() -> None:
    ask = Lossless(ranks=4, slots_per_rank=(3,), delay=2)
    loads = replanned(PAST, NOW, ask, 3, every=16, last=8)
    assert loads.shape == (48, 3, 4)
    for first in (0, 16, 32):
        newest = 72 + first - 2
        plan = planned("eplb", STEPS.between(newest - 8, newest), 4, 3)
        np.testing.assert_array_equal(loads[first : first + 16], rank_loads(NOW.counts, plan)[first : first + 16])
    with pytest.raises(UsageError, match="2 past steps are too few"):
        replanned(PAST.between(0, 2), NOW, ask, 3, every=16, last=8)


def test_the_table_of_what_costs_no_quality() -> None:
    told: list[int] = []
    ask = Lossless(ranks=4, slots_per_rank=(2, 3), replanned=((16, 8),), window=4, proposals=2000)
    rows = lossless(PAST, NOW, ask, told.append)
    assert len(told) == len(rows)
    assert {row.placement for row in rows} == {"uniform", "contiguous", "eplb", "window_search"}
    assert {row.fitted for row in rows} == {"past", "hindsight", "last 8 steps, each 16"}
    # Without a second replica there is nothing to choose.
    assert {row.replicas for row in rows if row.slots_per_rank == 2} == {"even"}
    best = {row.replicas: row.balance.step_mean for row in rows if (row.placement, row.fitted) == ("eplb", "past")}
    assert best["optimum"] <= best["least-loaded"]
    assert rows[1].to_dict()["placement"] == "contiguous"


def test_chance_keeps_the_totals() -> None:
    loads = by_chance(NOW.counts, 4, 0)
    np.testing.assert_array_equal(loads.sum(axis=2), NOW.counts.sum(axis=2))
    np.testing.assert_array_equal(loads, by_chance(NOW.counts, 4, 0))
