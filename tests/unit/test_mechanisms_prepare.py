"""What a run of mechanisms is prepared from."""

from __future__ import annotations

import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.mechanisms import prepare as preparing
from easybalance_sim.mechanisms.request import OffsetRequest
from easybalance_sim.planning.session import Settings
from tests.ebsim_process import SAMPLE
from tests.listeners import Heard


def test_steps_bound_all_that_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "_others", lambda *_: {})
    request = OffsetRequest(settings=Settings(traces=(SAMPLE,)), steps=(100, 1900), warm_up=20)
    ready = preparing.prepare(request, Heard())
    assert (ready.past.step[0], ready.judged.step[-1]) == (100, 1899)
    assert (ready.whole.step[0], ready.whole.step[-1]) == (100, 1899)
    assert ready.past.step[-1] < ready.judged.step[0]


def test_steps_that_end_before_the_judged_half_are_refused() -> None:
    with pytest.raises(UsageError, match="the second half of the trace is judged, which begins at step 1120"):
        preparing.prepare(OffsetRequest(settings=Settings(traces=(SAMPLE,)), steps=(100, 900)), Heard())
