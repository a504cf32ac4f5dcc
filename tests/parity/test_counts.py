"""numba against the naive loops: faults, counts and local rows are equal, to the last integer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.kernels import numba_counts, reference_counts
from tests.parity.cases import COUNTS, Counted, count_differs

modest = settings(max_examples=50, deadline=None)
WIDTHS = [("uint8", 4), ("uint8", 256), ("uint16", 300)]


@st.composite
def ids(draw: st.DrawFn, dtype: str, experts: int, *, distinct: bool) -> AnyArray:
    """[T, L, K] ids in 0..E-1, read-only or a view of a larger array; the K of a token distinct if asked."""
    shape = [draw(st.integers(0, 12)), draw(st.integers(1, 5)), draw(st.integers(1, min(4, experts)))]
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    if distinct:
        values = rng.random((*shape[:2], experts)).argsort(axis=2)[..., : shape[2]]
    else:
        values = rng.integers(0, experts, shape)
    array = values.astype(dtype)
    if draw(st.booleans()):
        return frozen(np.concatenate([array, array]))[len(array) :]
    return array if draw(st.booleans()) else frozen(array)


@modest
@given(st.data(), st.sampled_from(WIDTHS), st.booleans(), st.integers(0, 3))
def test_check_ids(data: st.DataObject, width: tuple[str, int], distinct: bool, faults: int) -> None:
    dtype, experts = width
    chosen = data.draw(ids(dtype, experts, distinct=distinct))
    allowed = max(1, experts - faults)
    assert numba_counts.check_ids(chosen, allowed) == reference_counts.check_ids(chosen, allowed)


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ([[[0, 1], [2, 3]], [[3, 2], [1, 0]]], (-1, -1, 0)),
        ([[[0, 1], [2, 3]], [[3, 4], [1, 1]]], (1, 0, 1)),
        ([[[0, 1], [2, 2]], [[3, 4], [1, 1]]], (0, 1, 2)),
        ([[[0, 1], [2, 255]]], (0, 1, 1)),
        ([[[4, 4], [0, 1]]], (0, 0, 1)),
        ([[[0, 0], [4, 1]]], (0, 0, 2)),
    ],
)
def test_faults_by_hand(chosen: list[list[list[int]]], found: tuple[int, int, int]) -> None:
    for kernels in (reference_counts, numba_counts):
        assert kernels.check_ids(frozen(chosen, np.uint8), 4) == found


@modest
@given(st.data(), st.sampled_from(WIDTHS), st.integers(1, 4))
def test_count_windows(data: st.DataObject, width: tuple[str, int], windows: int) -> None:
    dtype, experts = width
    chosen = data.draw(ids(dtype, experts, distinct=False))
    window = np.random.default_rng(windows).integers(-1, windows, len(chosen)).astype(np.int32)
    shape = (windows, chosen.shape[1], experts)
    start = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    counted = [start.copy(), start.copy()]
    numba_counts.count_windows(chosen, frozen(window), counted[0])
    reference_counts.count_windows(chosen, window, counted[1])
    np.testing.assert_array_equal(counted[0], counted[1])
    assert (counted[0] - start).sum() == np.count_nonzero(window >= 0) * chosen.shape[1] * chosen.shape[2]


@pytest.mark.parametrize("case", COUNTS.values(), ids=COUNTS)
def test_count_windows_of_every_case(case: Counted) -> None:
    assert not count_differs(numba_counts, case)


@modest
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30))
def test_local_rows(tokens: list[tuple[int, int]]) -> None:
    step = frozen(np.cumsum([gap for gap, _ in tokens]), np.int32)
    source = frozen([rank for _, rank in tokens], np.int16)
    found = numba_counts.local_rows(step, source, 4)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, reference_counts.local_rows(step, source, 4))


def test_local_rows_by_hand() -> None:
    step, source = frozen([5, 5, 5, 5, 8, 8], np.int32), frozen([1, 0, 1, 1, 1, 0], np.int16)
    for kernels in (reference_counts, numba_counts):
        assert kernels.local_rows(step, source, 2).tolist() == [0, 0, 1, 2, 0, 0]
