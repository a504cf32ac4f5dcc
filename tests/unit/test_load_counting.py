"""Windows of steps and of seconds against a plain count over the columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray
from easybalance_sim.errors import UsageError
from easybalance_sim.load import counting
from easybalance_sim.load.counting import Windowing, count_windows, sampling, windows_of_counts
from easybalance_sim.load.selection import Selection
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.trace import source
from easybalance_sim.trace.schema import DECODE, CountTrace
from tests.replay_cases import batch_of
from tests.trace_files import Columns, random_columns, scanned, token_meta, token_trace, write_trace

META = token_meta(layers=(3, 5, 8), experts=16, top_k=3)
RNG = np.random.default_rng(2)
COLUMNS: Columns = random_columns(RNG, np.sort(RNG.choice([*range(30), *range(50, 120)], 400)).tolist(), META)
TIMES = COLUMNS["step"] * 0.01


def plain_count(columns: Columns, window: AnyArray) -> tuple[list[int], AnyArray, list[int]]:
    ids = np.unique(window)
    tokens = np.zeros((len(ids), len(META.layers), META.experts), np.int64)
    for row, token in zip(np.searchsorted(ids, window), columns["experts"], strict=True):
        for layer, chosen in enumerate(token):
            tokens[row, layer, chosen] += 1
    steps = [len(np.unique(columns["step"][window == each])) for each in ids]
    return ids.tolist(), tokens, steps


def require_counts(found: LoadWindows, columns: Columns, window: AnyArray) -> None:
    ids, tokens, steps = plain_count(columns, window)
    assert found.window.tolist() == ids and found.steps.tolist() == steps
    np.testing.assert_array_equal(found.tokens, tokens)
    np.testing.assert_array_equal(found.total, tokens.sum(axis=0))


@pytest.mark.parametrize("batch_tokens", [5, 64, 65536])
@pytest.mark.parametrize("steps", [1, 7, 16, 1000])
def test_windows_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_tokens: int, steps: int) -> None:
    monkeypatch.setattr(source, "BATCH_TOKENS", batch_tokens)
    trace = token_trace(write_trace(tmp_path / "t.parquet", COLUMNS, META))
    found = count_windows(trace.batches(), META, Windowing(steps=steps))
    require_counts(found, COLUMNS, COLUMNS["step"] // steps)
    assert found.steps_per_window == steps


@pytest.mark.parametrize("seconds", [0.05, 0.125, 99.0])
def test_windows_of_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(source, "BATCH_TOKENS", 50)
    timed = COLUMNS | {"time_s": TIMES}
    trace = token_trace(write_trace(tmp_path / "t.parquet", timed, META))
    found = count_windows(trace.batches(), META, Windowing(steps=4, seconds=seconds))
    require_counts(found, timed, np.floor(TIMES / seconds).astype(int))
    assert found.steps_per_window == 0


def test_only_what_is_selected_and_the_stratum_said(tmp_path: Path) -> None:
    trace = token_trace(write_trace(tmp_path / "t.parquet", COLUMNS, META))
    chosen = Selection(phase=DECODE).batches(trace)
    found = count_windows(chosen, META, Windowing(steps=8), phase="decode", workload="chat")
    decode = {name: values[COLUMNS["phase"] == "decode"] for name, values in COLUMNS.items()}
    require_counts(found, decode, decode["step"] // 8)
    assert (found.phase, found.workload) == ("decode", "chat")


def test_a_step_is_in_one_window_of_seconds() -> None:
    """That in which it begins, whatever the clocks of its other tokens say."""
    step, time_s = np.array([0, 0, 1, 1, 2]), np.array([0.1, 1.2, 1.9, 0.8, 2.5])
    batch = batch_of(step, np.zeros(5), np.zeros((5, 1, 1), np.uint8), time_s=time_s)
    assert Windowing(seconds=1.0).ids(batch).tolist() == [0, 0, 1, 1, 2]
    back = batch_of(step, np.zeros(5), np.zeros((5, 1, 1), np.uint8), time_s=time_s[::-1])
    with pytest.raises(
        UsageError, match="--window-seconds: the trace's clock goes back at step 1 — use --window-steps"
    ):
        Windowing(seconds=1.0).ids(back)


@pytest.mark.parametrize("span_tokens", [1, 7, 1000])
@pytest.mark.parametrize("batch_tokens", [1, 5, 1000])
def test_a_clock_that_goes_back_is_found_wherever_the_trace_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, span_tokens: int, batch_tokens: int
) -> None:
    """By a little inside a window it may; steps of three tokens, so that cuts lie inside steps, too."""
    monkeypatch.setattr(source, "SPAN_TOKENS", span_tokens)
    monkeypatch.setattr(source, "BATCH_TOKENS", batch_tokens)
    step = np.repeat(np.arange(20), 3)
    for late, says in ((8.5, 12), (10.9, None)):
        times = np.where(step == 12, late, step * 0.9)
        columns = random_columns(np.random.default_rng(0), step.tolist(), META) | {"time_s": times}
        trace = token_trace(write_trace(tmp_path / "t.parquet", columns, META, row_group=4))
        assert trace.scan().clock_back[:, 0].tolist() == ([12] if says else [])
        if says is None:
            Windowing(seconds=1.0).require_forward(trace.scan())
            continue
        Windowing(seconds=100.0).require_forward(trace.scan())
        with pytest.raises(UsageError, match=f"the trace's clock goes back at step {says}"):
            Windowing(seconds=1.0).require_forward(trace.scan())


def test_gaps_in_step_numbers_do_not_make_a_trace_long() -> None:
    scan = scanned([batch_of([0, 1, 10**9], np.zeros(3), np.zeros((3, 3, 3), np.uint8))])
    assert sampling(scan, META, Windowing(steps=1)) == 1
    assert sampling(scan, META, Windowing(seconds=1.0)) == 1


def test_windows_of_a_long_trace_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = scanned([batch_of(np.arange(100), np.zeros(100), np.zeros((100, 3, 3), np.uint8))])
    monkeypatch.setattr(counting, "WINDOW_BYTES", 20 * 3 * 16 * 8)
    assert [sampling(scan, META, Windowing(steps=steps)) for steps in (1, 2, 5, 50)] == [5, 3, 1, 1]


def test_nothing_to_count() -> None:
    found = count_windows([], META, Windowing())
    assert found.tokens.shape == (0, 3, 16) and found.total.sum() == 0


def test_seconds_of_a_trace_without_times(tmp_path: Path) -> None:
    bare = {name: values for name, values in COLUMNS.items() if name != "time_s"}
    trace = token_trace(write_trace(tmp_path / "t.parquet", bare, META))
    with pytest.raises(UsageError, match="the trace has no time_s column — use --window-steps"):
        count_windows(trace.batches(), META, Windowing(seconds=1.0))


@pytest.mark.parametrize("settings", [{"steps": 0}, {"seconds": -1.0}, {"seconds": float("nan")}])
def test_windows_of_no_length(settings: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="a window needs at least one step, or a positive time"):
        Windowing(**settings)  # type: ignore[arg-type]


def test_windows_of_a_count_trace() -> None:
    tokens = np.arange(24).reshape(2, 3, 4)
    zeros = np.zeros(2)
    trace = CountTrace(
        meta=META,
        paths=("c",),
        tokens=tokens,
        window=np.array([3, 9]),
        start_s=zeros,
        span_s=zeros,
        phase=zeros.astype(np.uint8),
        workload=zeros.astype(np.int16),
        batch_tokens=np.array([1, 2]),
    )
    found = windows_of_counts(trace)
    np.testing.assert_array_equal(found.tokens, tokens)
    assert (found.window.tolist(), found.steps.tolist(), found.steps_per_window) == ([0, 1], [1, 1], 1)
