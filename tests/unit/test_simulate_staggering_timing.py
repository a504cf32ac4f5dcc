"""Who waits for whom, on steps worked out by hand."""

from __future__ import annotations

import numpy as np

from easybalance_sim.simulate.staggering.timing import barrier, drifting, micro_batches, paired, unbound

STEP = np.array([[[4.0, 0.0], [0.0, 1.0], [0.0, 4.0]]])
"""Rank 0 is busy in the first layer, rank 1 in the others."""


def test_a_barrier_waits_for_the_busiest_rank_of_every_layer() -> None:
    assert barrier(STEP).tolist() == [4 + 1 + 4]
    assert drifting(STEP, 0).tolist() == [9]


def test_one_layer_ahead_waits_for_the_layer_before_the_last() -> None:
    # Rank 1 is done with the second layer at 1 and begins the third when rank 0 is done with the first, at 4.
    assert drifting(STEP, 1).tolist() == [4 + 4]


def test_without_a_barrier_the_busiest_total_counts() -> None:
    assert unbound(STEP).tolist() == [5]
    assert drifting(STEP, 2).tolist() == drifting(STEP, 7).tolist() == [5]


def test_two_micro_batches_share_ranks_one_layer_apart() -> None:
    # Layer pairs: first alone 4 · (0, 1) + (4, 0) = 4 · (0, 4) + (0, 1) = 5 · second alone 4.
    assert micro_batches(STEP, STEP).tolist() == [4 + 4 + 5 + 4]
    other = np.array([[[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]]])
    assert micro_batches(STEP, other).tolist() == [4 + 2 + 4 + 2]


def test_a_model_of_one_layer_has_nothing_to_overlap() -> None:
    assert micro_batches(STEP[:, :1], STEP[:, :1]).tolist() == [8]
    assert drifting(STEP[:, :1]).tolist() == [4]


def test_consecutive_steps_make_a_pair() -> None:
    loads = np.arange(5.0)[:, None, None]
    first, second = paired(loads)
    assert (first.ravel().tolist(), second.ravel().tolist()) == ([1, 3], [2, 4])
