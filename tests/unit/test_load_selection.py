"""Selections against plain masks over the columns of a written trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.arrays import BoolArray
from easybalance_sim.errors import UsageError
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.selection import Selection, phase_filter, workload_filter
from easybalance_sim.load.split import FIT, HELD_OUT, make_split
from easybalance_sim.trace import source
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import DECODE, PREFILL, UNKNOWN_PHASE
from tests.trace_files import Columns, random_columns, token_meta, token_trace, write_trace

META = token_meta()
COLUMNS: Columns = random_columns(np.random.default_rng(5), np.sort(np.arange(300) // 4).tolist(), META)
DECODES, CODES = COLUMNS["phase"] == "decode", COLUMNS["workload"] == "code"


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenTrace:
    monkeypatch.setattr(source, "BATCH_TOKENS", 64)
    opened = token_trace(write_trace(tmp_path / "t.parquet", COLUMNS, META))
    opened.scan()
    return opened


def chosen(selection: Selection, trace: TokenTrace) -> BoolArray:
    """bool[T] the tokens that a selection yields, found by their times, which differ."""
    times = [batch.time_s for batch in selection.batches(trace) if batch.time_s is not None]
    assert all(len(part) for part in times)
    found = np.concatenate(times) if times else np.zeros(0)
    assert np.array_equal(found, np.sort(found)) and len(np.unique(found)) == len(found)
    return np.isin(COLUMNS["time_s"], found)


def test_everything(trace: TokenTrace) -> None:
    assert Selection().mask(next(trace.batches())) is None
    assert chosen(Selection(), trace).all()


def test_phase_and_workloads(trace: TokenTrace) -> None:
    codes = workload_filter(["code"], trace.workloads)
    both = workload_filter(["chat", "code"], trace.workloads)
    assert np.array_equal(chosen(Selection(phase=DECODE), trace), DECODES)
    assert np.array_equal(chosen(Selection(workloads=codes), trace), CODES)
    assert np.array_equal(chosen(Selection(phase=PREFILL, workloads=codes), trace), CODES & ~DECODES)
    assert np.array_equal(chosen(Selection(workloads=both), trace), np.isin(COLUMNS["workload"], ["chat", "code"]))
    assert not chosen(Selection(phase=UNKNOWN_PHASE), trace).any()


@pytest.mark.parametrize("by", ["time", "request", "workload"])
def test_sides_of_a_split(trace: TokenTrace, by: str) -> None:
    if by == "time":
        columns = COLUMNS | {"request": np.arange(300) // 20}
        trace = token_trace(write_trace(trace.paths[0], columns, META))
    split = make_split(trace.scan(), trace.workloads, by, 0.5, 0, 4)
    base = Selection(phase=DECODE)
    fit, held = (chosen(base.of_side(split, side), trace) for side in (FIT, HELD_OUT))
    assert fit.any() and held.any() and not (fit & held).any()
    assert not ((fit | held) & ~DECODES).any()
    if by != "time":
        assert np.array_equal(fit | held, DECODES)


def test_without_another_selection(trace: TokenTrace) -> None:
    codes = workload_filter(["code"], trace.workloads)
    without = Selection(phase=DECODE, without=Selection(workloads=codes))
    assert np.array_equal(chosen(without, trace), DECODES & ~CODES)
    assert not chosen(Selection(without=Selection()), trace).any()


def test_one_in_so_many_windows(trace: TokenTrace) -> None:
    sampled = Selection(phase=DECODE).sampled(3, Windowing(steps=4))
    windows = COLUMNS["step"] // 4
    kept = np.unique(windows[chosen(Selection().sampled(3, Windowing(steps=4)), trace)])
    assert len(np.unique(kept // 3)) == len(kept) > 3, "one of three neighbours"
    assert len(np.unique(kept % 3)) > 1, "not always the first of them"
    assert np.array_equal(chosen(sampled, trace), DECODES & np.isin(windows, kept))
    assert np.array_equal(chosen(Selection().sampled(1, Windowing(steps=4)), trace), np.ones(300, bool))


def test_filters_from_names() -> None:
    assert phase_filter(None) is None and phase_filter("decode") == DECODE
    assert workload_filter([], ["a"]) is None and workload_filter(["c", "a"], ["a", "b", "c"]) == (2, 0)


def test_names_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="no phase 'training' — choose prefill, decode, unknown"):
        phase_filter("training")
    with pytest.raises(UsageError, match="the trace has no workload 'x' — it has chat, code"):
        workload_filter(["chat", "x"], ["chat", "code"])


def test_spans_that_may_hold_a_token_to_keep(trace: TokenTrace) -> None:
    """Never a no where a token is; a no where the boundary or the sampled windows say so."""
    spans = np.array_split(np.arange(300), 40)
    first, last = (np.array([COLUMNS["step"][rows[end]] for rows in spans]).astype(np.int64) for end in (0, -1))
    time = make_split(trace.scan(), trace.workloads, "time", 0.5, 0, 4)
    by_time = [Selection().of_side(time, side) for side in (FIT, HELD_OUT)]
    sampled = Selection().sampled(5, Windowing(steps=2))
    many = [Selection().sampled(every, Windowing(steps=steps)) for every in (2, 3, 7, 50) for steps in (1, 2, 5)]
    for selection in (*by_time, sampled, Selection(phase=DECODE), by_time[0].sampled(3, Windowing(steps=4)), *many):
        kept = chosen(selection, trace)
        may = selection.may_hold(first, last)
        assert all(yes for rows, yes in zip(spans, may, strict=True) if kept[rows].any())
    assert not by_time[0].may_hold(first, last).all() and not by_time[1].may_hold(first, last).all()
    assert not sampled.may_hold(first, last).all()


def test_the_span_that_ends_with_the_boundary_holds_something(trace: TokenTrace) -> None:
    split = make_split(trace.scan(), trace.workloads, "time", 0.5, 0, 4)
    ends = np.array([split.boundary - 1, split.boundary, split.boundary + 1])
    assert Selection().of_side(split, HELD_OUT).may_hold(ends - 1, ends).tolist() == [False, True, True]
    assert Selection().of_side(split, FIT).may_hold(ends, ends + 1).tolist() == [True, False, False]
