"""One run of a prepared scenario: the same again, at another rate, at the other end of the bracket."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.deployment.measure import Measured, measure
from easybalance_sim.deployment.prepare import AFTER, BEFORE, EVEN, KEYS, Prepared, prepare
from easybalance_sim.deployment.scenario import load_scenario
from easybalance_sim.errors import UsageError
from tests.listeners import Heard
from tests.small_scenario import TWO_POOLS, small_scenario


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(load_scenario(small_scenario(tmp_path_factory.mktemp("one"))), Heard())


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(load_scenario(small_scenario(tmp_path_factory.mktemp("two"), TWO_POOLS)), Heard())


def _finish(run: Measured) -> list[float]:
    found: list[float] = run.service.finish_s.tolist()
    return found


def test_every_key_serves_the_same_requests_deterministically(ready: Prepared) -> None:
    for key in KEYS:
        first, again = measure(ready, key), measure(ready, key)
        assert _finish(first) == _finish(again)
        assert first.results.finished == first.results.requests < ready.workload.requests
    assert _finish(measure(ready, BEFORE)) != _finish(measure(ready, AFTER))
    assert _finish(measure(ready, AFTER)) != _finish(measure(ready, AFTER, seed=7))


def test_requests_go_on_after_those_that_are_scored(ready: Prepared) -> None:
    """Those that come last would otherwise see a deployment that runs empty."""
    run, load = ready.scenario.run, ready.workload
    scored = (load.arrival_s >= run.warm_up_s) & (load.arrival_s < run.duration_s)
    found = measure(ready, AFTER)
    assert load.span_s > run.duration_s + ready.scenario.tail_s / 2
    assert (found.results.from_s, found.results.to_s) == (run.warm_up_s, run.duration_s)
    assert found.results.requests == scored.sum() < load.requests
    last = np.flatnonzero(scored)[-1]
    assert found.service.finish_s[last] < load.span_s


def test_even_ranks_lose_nothing_and_hidden_communication_helps(ready: Prepared) -> None:
    (run,) = measure(ready, EVEN).service.runs
    assert all(abs(run.seconds[f"lost_{part}"]) < 1e-9 for part in ("dispatch", "expert", "combine"))
    for key in (BEFORE, AFTER):
        serial, hidden = (measure(ready, key, overlap=how).results.end_to_end.mean for how in ("none", "full"))
        assert hidden < serial


def test_a_rate_makes_nothing_anew_but_requests(ready: Prepared) -> None:
    slow, fast = (measure(ready, AFTER, rate_per_s=rate) for rate in (20.0, 400.0))
    assert slow.stations is fast.stations is ready.after
    assert slow.service.workload.rate_per_s == pytest.approx(20.0)
    assert fast.service.workload.requests > 10 * slow.service.workload.requests
    assert fast.results.ttft.p50 > slow.results.ttft.p50


def test_two_pools_hand_requests_over(split: Prepared) -> None:
    run = measure(split, AFTER)
    prefill, decode = run.service.runs
    assert len(run.service.handed_over) == int((run.service.workload.output_tokens > 1).sum())
    assert prefill.decode_tokens == 0 and decode.decode_tokens > prefill.prompt_tokens / 100
    assert np.nanmin(run.service.finish_s - run.service.first_token_s) >= 0


def test_what_there_is_not_is_refused(ready: Prepared, tmp_path: Path) -> None:
    for fault in ({"key": "later"}, {"key": AFTER, "overlap": "half"}, {"key": AFTER, "rate_per_s": -1.0}):
        with pytest.raises(UsageError):
            measure(ready, **fault)
