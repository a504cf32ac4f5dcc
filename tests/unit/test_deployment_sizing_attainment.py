"""What a run attains, request by request."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from easybalance_sim.deployment.fields import Run, Slo
from easybalance_sim.deployment.prepare import AFTER, BEFORE, Prepared, prepare
from easybalance_sim.deployment.scenario import Scenario, load_scenario
from easybalance_sim.deployment.sizing.attainment import (
    GROWS,
    REFUSED,
    TPOT,
    TTFT,
    Attainment,
    attained,
    attainment,
    joined,
)
from tests.listeners import Heard
from tests.services import one_at_a_time, requests
from tests.small_scenario import small_scenario


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return load_scenario(small_scenario(tmp_path_factory.mktemp("one")))


@pytest.fixture(scope="module")
def ready(scenario: Scenario) -> Prepared:
    """First tokens within 3 ms: a step or two."""
    return prepare(msgspec.structs.replace(scenario, slo=Slo(ttft_s=0.003, tpot_s=0.01)), Heard())


def of_seconds(scenario: Scenario, ttft_s: float, tpot_s: float, warm_up_s: float = 0.0) -> Scenario:
    """With that SLO, scored from the warm-up to second 100."""
    return msgspec.structs.replace(
        scenario, slo=Slo(ttft_s=ttft_s, tpot_s=tpot_s), run=Run(duration_s=100.0, warm_up_s=warm_up_s)
    )


def test_a_queue_of_four(scenario: Scenario) -> None:
    """Steps of a second, three tokens each: first tokens after 1, 3, 5 and 7 seconds, a second per token."""
    service = one_at_a_time(requests(np.arange(4.0), output_tokens=3), 1.0)
    found = attainment(of_seconds(scenario, 5.0, 1.0), 1.0, service)
    assert (found.requests, found.inside, found.late_first, found.slow, found.refused) == (4, 0.75, 0.25, 0.0, 0.0)
    assert found.fails_by(0.75) == "" and found.fails_by(0.8) == TTFT
    slow = attainment(of_seconds(scenario, 5.0, 0.5), 1.0, service)
    assert (slow.inside, slow.late_first, slow.slow) == (0.0, 0.25, 0.75)
    assert slow.fails_by(0.8) == TPOT


def test_who_is_turned_away_is_not_inside(scenario: Scenario) -> None:
    """One is served, two wait, five are turned away."""
    service = one_at_a_time(requests(np.arange(8) * 0.01), 1.0, waiting=2)
    found = attainment(of_seconds(scenario, 50.0, 50.0), 1.0, service)
    assert (found.refused, found.inside, found.fails_by(0.9)) == (0.625, 0.375, REFUSED)


def test_only_those_between_warm_up_and_end_are_scored(scenario: Scenario) -> None:
    service = one_at_a_time(requests(np.array([0.0, 40.0, 80.0, 120.0])), 1.0)
    assert attainment(of_seconds(scenario, 5.0, 1.0, warm_up_s=20.0), 1.0, service).requests == 2
    early = one_at_a_time(requests(np.array([0.0, 1.0])), 1.0)
    assert attainment(of_seconds(scenario, 5.0, 1.0, warm_up_s=20.0), 1.0, early).requests == 2


def test_a_queue_that_grows_is_not_held_before_anyone_is_late(scenario: Scenario) -> None:
    """5 % more than is served: after 100 s the last one waits 6 s of the 10 that it may."""
    service = one_at_a_time(requests(np.arange(0.0, 110.0, 1 / 1.05)), 1.0)
    found = attainment(of_seconds(scenario, 10.0, 1.0), 1.05, service)
    assert found.inside == 1.0 and found.growth == pytest.approx(0.05, rel=0.02)
    assert not found.holds(0.95) and found.fails_by(0.95) == GROWS
    stable = one_at_a_time(requests(np.arange(0.0, 110.0, 1.05)), 1.0)
    assert attainment(of_seconds(scenario, 10.0, 1.0), 1 / 1.05, stable).holds(0.95)


def test_seeds_are_joined_by_their_means(ready: Prepared) -> None:
    apart = [attained(ready, AFTER, 400.0, seeds=(seed,)) for seed in (100, 101, 102)]
    both = attained(ready, AFTER, 400.0, seeds=(100, 101, 102))
    assert both == joined(apart)
    assert both.inside == pytest.approx(np.mean([one.inside for one in apart]))
    assert both.inside_least == min(one.inside for one in apart) < max(one.inside for one in apart) == both.inside_most
    assert both.requests == min(one.requests for one in apart)


def test_requests_go_on_after_those_that_are_scored(ready: Prepared) -> None:
    """Were the deployment to run empty, its last requests would see shorter steps."""
    found = attained(ready, BEFORE, 100.0, seeds=(100,))
    span = ready.scenario.run.duration_s - ready.scenario.run.warm_up_s
    assert found.requests == pytest.approx(100 * span, rel=0.25)
    assert found.rate_per_s == 100.0


def test_more_requests_do_worse(ready: Prepared) -> None:
    found: list[Attainment] = [attained(ready, AFTER, rate, seeds=(100,)) for rate in (50.0, 4000.0)]
    assert found[0].inside > found[1].inside
    assert replace(found[0], inside=0.9).fails_by(0.9) == ""
