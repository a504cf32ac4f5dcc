"""Windows of steps."""

from __future__ import annotations

import numpy as np

from easybalance_sim.simulate.steps.balance import window_sums, windows_apart


def test_windows_that_lie_apart_end_with_the_newest_step() -> None:
    counts = np.arange(1, 8, dtype=np.int32)[:, None, None]
    assert windows_apart(counts, 3).ravel().tolist() == [2 + 3 + 4, 5 + 6 + 7]
    assert windows_apart(counts, 100).ravel().tolist() == [28]
    assert windows_apart(counts, 0).ravel().tolist() == list(range(1, 8))
    assert windows_apart(counts, 3).dtype == np.int64
    assert windows_apart(counts / 2, 3).ravel().tolist() == [4.5, 9.0]


def test_sums_of_small_integers_do_not_run_over() -> None:
    full = np.full((4, 1), np.iinfo(np.int32).max, np.int32)
    assert windows_apart(full, 4).tolist() == [[4 * (2**31 - 1)]]


def test_sliding_windows_are_one_step_apart() -> None:
    assert window_sums(np.arange(1.0, 6.0), 3).tolist() == [6, 9, 12]
