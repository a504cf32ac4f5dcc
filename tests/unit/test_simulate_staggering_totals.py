"""Bytes that ranks carry over all layers, counted by hand."""

from __future__ import annotations

import numpy as np

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.staggering.totals import arrivals, from_other_nodes, memory_bytes
from easybalance_sim.simulate.steps.recorded import sources
from tests.staggering_steps import steps_of

PLAN = Plan(expert_of_slot=np.array([[0, 1, 2, 0]]), slots_per_rank=np.array([1, 1, 1, 1]), experts=3, policy="mine")
"""Expert 0 on ranks 0 and 3."""
NODES = np.array([0, 0, 1, 1])


def test_memory_reads_active_slots_and_moves_activations() -> None:
    counts = np.array([[[1, 2, 0]], [[4, 0, 0]]])
    # One assignment wakes one of two replicas: half of each on the mean.
    np.testing.assert_allclose(
        memory_bytes(counts, PLAN, 100, 10)[:, 0],
        [[50 + 10, 100 + 40, 0, 50 + 10], [100 + 40, 0, 0, 100 + 40]],
    )


def test_what_arrives_is_counted_by_the_node_it_comes_from() -> None:
    steps = steps_of(np.array([[[0]], [[1]], [[1]], [[2]]]), [2, 2], 3, source=np.array([0, 2, 0, 0]), ranks=4)
    found = arrivals(steps, PLAN, NODES, 1)
    assert found.shape == (2, 2, 1, 4)
    np.testing.assert_array_equal(found[0, :, 0], [[0.5, 0, 0, 0.5], [0, 1, 0, 0]])
    np.testing.assert_array_equal(found[1, :, 0], [[0, 1, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(from_other_nodes(found, NODES), [[0, 1, 0, 0.5], [0, 0, 1, 0]])


def test_windows_of_arrivals_leave_out_the_first_steps_too() -> None:
    steps = steps_of(np.array([[[0]], [[1]], [[2]]]), [1, 1, 1], 3)
    found = arrivals(steps, PLAN, NODES, 2)
    assert found.sum() == 2
    assert found[0, :, 0, 1].sum() == found[0, :, 0, 2].sum() == 1


def test_a_source_that_is_not_recorded_is_dealt_by_request() -> None:
    ids = np.zeros((3, 1, 1))
    recorded = np.array([1, -1, 0])
    assert sources(steps_of(ids, [3], 3, source=recorded, ranks=2), 2).tolist() == [1, 1, 0]
    assert sources(steps_of(ids, [3], 3, source=recorded, ranks=4), 2).tolist() == [0, 1, 0]
