"""Which requests are scored, and over which seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from easybalance_sim.deployment.fields import Arrivals, Run
from easybalance_sim.deployment.scenario import Scenario, load_scenario
from easybalance_sim.deployment.scoring import scored_span
from easybalance_sim.simulate.serving.pools import Service
from easybalance_sim.simulate.serving.results import Slo, summarised
from tests.services import one_at_a_time, requests
from tests.small_scenario import small_scenario


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """A minute, five seconds of which warm up."""
    found = load_scenario(small_scenario(tmp_path_factory.mktemp("one")))
    return msgspec.structs.replace(found, run=Run(duration_s=60.0, warm_up_s=5.0))


def _of_file(scenario: Scenario) -> Scenario:
    return msgspec.structs.replace(scenario, arrivals=Arrivals(file="requests.csv"))


def _served(arrival_s: Sequence[float]) -> Service:
    """A tenth of a second each."""
    return one_at_a_time(requests(np.array(arrival_s)), 0.1)


def test_from_the_warm_up_to_the_end_of_the_run(scenario: Scenario) -> None:
    service = _served(np.arange(0.5, 75.0).tolist())
    for one in (scenario, _of_file(scenario)):
        assert scored_span(one, service) == (5.0, 60.0)


def test_streams_last_however_rarely_requests_come(scenario: Scenario) -> None:
    assert scored_span(scenario, _served([1.0, 30.0])) == (5.0, 60.0)
    gone = [msgspec.structs.replace(one, until_s=31.0) for one in scenario.arrivals.tenants]
    brief = msgspec.structs.replace(scenario, arrivals=msgspec.structs.replace(scenario.arrivals, tenants=tuple(gone)))
    assert scored_span(brief, _served([1.0, 30.0])) == pytest.approx((5.0, 30.1))


def test_a_file_that_ends_early_is_scored_until_its_last_answer(scenario: Scenario) -> None:
    assert scored_span(_of_file(scenario), _served(np.arange(20.0).tolist())) == pytest.approx((5.0, 19.1))
    assert scored_span(_of_file(scenario), _served(np.arange(60.0).tolist())) == (5.0, 60.0)


@pytest.mark.parametrize("arrival_s", [[0.5, 1.0, 1.3], [3.0], [0.0], [0.0] * 5, [7.0], [0.5, 5.0001]])
def test_no_request_makes_a_rate_that_nobody_could_serve(scenario: Scenario, arrival_s: list[float]) -> None:
    """At most ten requests a second are served one after the other."""
    service = _served(arrival_s)
    for one in (scenario, _of_file(scenario)):
        from_s, to_s = scored_span(one, service)
        found = summarised(service, Slo(ttft_s=9.0, tpot_s=9.0), from_s=from_s, to_s=to_s)
        late = sum(at >= 5.0 for at in arrival_s)
        assert found.requests == (late or len(arrival_s)) and 0 < found.goodput_per_s <= 10.0


def test_one_that_is_turned_away_last_is_scored_too(scenario: Scenario) -> None:
    service = _served([0.5, 1.0])
    ends = replace(service, runs=tuple(replace(run, end_s=1.0) for run in service.runs))
    from_s, to_s = scored_span(_of_file(scenario), ends)
    assert summarised(ends, Slo(ttft_s=9.0, tpot_s=9.0), from_s=from_s, to_s=to_s).requests == 2
