"""Folds: who is judged on whom, and that no request stands on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.load.folds import FEWEST_WINDOWS, MOST_WINDOWS, Fold, folds_of_requests, folds_of_windows
from easybalance_sim.load.rebatch import Queue, queue_of
from tests.replay_cases import batch_of
from tests.skewed_traces import EXPERTS, TOP_K, skewed_columns
from tests.trace_files import Columns, scanned, token_meta


def folds_of_columns(columns: Columns, steps: int, finer: int = 0) -> tuple[Fold, ...]:
    return folds_of_requests(queue_of_columns(columns), steps, finer or steps)


def queue_of_columns(columns: Columns) -> Queue:
    batch = batch_of(columns["step"], columns["source_rank"], columns["experts"], request=columns["request"])
    scan, steps = scanned([batch]), len(np.unique(columns["step"]))
    made = queue_of(lambda work, _: [work([batch])], token_meta((3, 5), EXPERTS, TOP_K), scan, scan.request, steps, 0)
    assert made is not None
    return made


def with_own_experts(columns: Columns) -> Columns:
    """Every request uses one expert of its own, so that counts tell requests apart (up to EXPERTS of them)."""
    experts = np.repeat((columns["request"] % EXPERTS)[:, None, None], 2, axis=1).repeat(TOP_K, axis=2)
    return {**columns, "experts": experts.astype(np.uint8)}


def test_halves_of_requests_share_no_request() -> None:
    columns = skewed_columns(200)
    few = np.isin(columns["request"], np.unique(columns["request"])[:EXPERTS])
    for fold in folds_of_columns(with_own_experts({k: v[few] for k, v in columns.items()}), 1):
        on_fit = (fold.fit.sum(axis=(0, 1)) > 0) | (fold.rebatched.sum(axis=(0, 1)) > 0)
        assert on_fit.any() and not (on_fit & (fold.held.sum(axis=(0, 1)) > 0)).any()


def test_each_half_is_planned_on_and_judged_on_once_per_kind() -> None:
    folds = folds_of_columns(skewed_columns(400), 2)
    assert [fold.new_topics for fold in folds] == [False, False, True, True]
    for first, second in (folds[:2], folds[2:]):
        np.testing.assert_array_equal(first.fit, second.held)
        np.testing.assert_array_equal(second.fit, first.held)
        assert len(first.rebatched) > len(first.fit)


def test_blocked_folds_have_other_topics_on_either_side() -> None:
    """Hot experts 0-3 or 8-11 by workload: of the topic order each half holds mostly one."""

    def lean(windows: AnyArray) -> float:
        left, right = windows[..., 0:4].sum(), windows[..., 8:12].sum()
        return float(left / (left + right))

    folds = folds_of_columns(skewed_columns(400), 2)
    gaps = [abs(lean(fold.fit) - lean(fold.held)) for fold in folds]
    assert max(gaps[:2]) < 0.15 and min(gaps[2:]) > 0.3


def test_searches_get_shorter_windows_of_the_same_run() -> None:
    for fold in folds_of_columns(skewed_columns(400), 8, 2):
        assert len(fold.finer) // 4 == len(fold.fit)
        pairs = fold.finer[: 4 * len(fold.fit)].reshape(len(fold.fit), 4, *fold.fit.shape[1:])
        np.testing.assert_array_equal(pairs.sum(axis=1), fold.fit)


def test_too_few_requests_make_no_fold() -> None:
    assert folds_of_columns(skewed_columns(60), 16) == ()


def test_blocks_of_windows_take_turns_then_halves() -> None:
    tokens = np.arange(1, 21, dtype=np.int64)[:, None, None] * np.ones((1, 2, 3), np.int64)
    silent = np.insert(tokens, 7, 0, axis=0)
    folds = folds_of_windows(silent)
    rows = [((fold.fit[:, 0, 0] - 1).tolist(), (fold.held[:, 0, 0] - 1).tolist(), fold.new_topics) for fold in folds]
    even, odd = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14], [5, 6, 7, 8, 9, 15, 16, 17, 18, 19]
    early, late = list(range(10)), list(range(10, 20))
    assert rows == [(even, odd, False), (odd, even, False), (early, late, True), (late, early, True)]
    assert all(len(fold.rebatched) == len(fold.finer) == 0 for fold in folds)


@pytest.mark.parametrize("windows", [0, 1, 2 * FEWEST_WINDOWS - 1])
def test_too_few_windows_make_no_fold(windows: int) -> None:
    assert folds_of_windows(np.ones((windows, 2, 3), np.int64)) == ()


def test_many_windows_are_thinned() -> None:
    folds = folds_of_windows(np.ones((1000, 1, 3), np.int64))
    assert {len(fold.fit) for fold in folds} == {len(fold.held) for fold in folds} == {MOST_WINDOWS}
