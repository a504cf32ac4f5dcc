"""One pass for a summary: the same counts and pairs as two, however the trace is cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.load import counting
from easybalance_sim.load.coactivation import PairCounter
from easybalance_sim.load.counting import Windowing, count_windows
from easybalance_sim.load.description import describe
from easybalance_sim.trace import source
from easybalance_sim.trace.dataset import TokenTrace
from tests.trace_files import random_columns, token_meta, token_trace, write_trace

META = token_meta(layers=(3, 5, 8), experts=16, top_k=3)


@pytest.fixture(params=[1, 40, 1000])
def trace(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenTrace:
    monkeypatch.setattr(source, "SPAN_TOKENS", request.param)
    rng = np.random.default_rng(0)
    columns = random_columns(rng, np.sort(rng.integers(0, 60, 400)).tolist(), META)
    return token_trace(write_trace(tmp_path / "t.parquet", columns, META, row_group=17))


def test_counts_and_pairs_of_the_whole(trace: TokenTrace) -> None:
    told: list[int] = []
    windows, together, every = describe(trace, Windowing(steps=7), told.append)
    wanted, pairs = count_windows(trace.batches(), META, Windowing(steps=7)), PairCounter(3, 16)
    for _ in pairs.watching(trace.batches()):
        pass
    assert every == 1 and sum(told) == 400
    np.testing.assert_array_equal(windows.tokens, wanted.tokens)
    assert windows.window.tolist() == wanted.window.tolist() and windows.steps.tolist() == wanted.steps.tolist()
    np.testing.assert_array_equal(together.pairs, pairs.counted().pairs)
    assert together.tokens == 400


def test_of_a_long_trace_some_windows_and_all_pairs(trace: TokenTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "WINDOW_BYTES", 12 * 3 * 16 * 8)
    windows, together, every = describe(trace, Windowing(steps=1), lambda done: None)
    assert every == 5 and (windows.window // 5).tolist() == list(range(12))
    assert together.tokens == 400
