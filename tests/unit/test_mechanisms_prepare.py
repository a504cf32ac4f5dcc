"""What a run of mechanisms is prepared from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.mechanisms import prepare as preparing
from easybalance_sim.mechanisms.request import OffsetRequest
from easybalance_sim.planning.session import Settings
from tests.ebsim_process import SAMPLE
from tests.listeners import Heard
from tests.trace_files import random_columns, token_meta, write_trace


def test_steps_bound_all_that_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "_others", lambda *_: {})
    request = OffsetRequest(settings=Settings(traces=(SAMPLE,)), steps=(100, 1900), warm_up=20)
    ready = preparing.prepare(request, Heard())
    assert (ready.past.step[0], ready.judged.step[-1]) == (100, 1899)
    assert (ready.whole.step[0], ready.whole.step[-1]) == (100, 1899)
    assert ready.past.step[-1] < ready.judged.step[0]


def test_steps_without_an_end_are_all_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "_others", lambda *_: {})
    request = OffsetRequest(settings=Settings(traces=(SAMPLE,)), steps=(1000, None), warm_up=20)
    ready = preparing.prepare(request, Heard())
    assert (ready.whole.step[0], ready.whole.step[-1]) == (1000, 2254)


def test_a_trace_that_cannot_be_halved_says_so_without_options_of_others(tmp_path: Path) -> None:
    meta = token_meta()
    columns = random_columns(np.random.default_rng(0), np.arange(300).tolist(), meta)
    columns["request"] = np.zeros(300, np.int64)
    path = write_trace(tmp_path / "one.parquet", columns, meta)
    with pytest.raises(UsageError, match="cannot be split in the middle") as caught:
        preparing.prepare(OffsetRequest(settings=Settings(traces=(path,))), Heard())
    assert "--past" in str(caught.value) and "--split" not in str(caught.value)


def test_steps_that_end_before_the_judged_half_are_refused() -> None:
    with pytest.raises(UsageError, match="the second half of the trace is judged, which begins at step 1120"):
        preparing.prepare(OffsetRequest(settings=Settings(traces=(SAMPLE,)), steps=(100, 900)), Heard())
