"""Waits that grow, and those that do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.arrays import BoolArray
from easybalance_sim.deployment.sizing.growth import growth, rise
from easybalance_sim.simulate.serving.pools import Service
from tests.services import one_at_a_time, requests

COUNT = 400


def poisson(rate_per_s: float, seed: int = 100) -> Service:
    """Answers of one token, one a second: rate_per_s is the load."""
    arrival = np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_s, COUNT))
    return one_at_a_time(requests(arrival), 1.0)


def every(service: Service) -> BoolArray:
    return np.ones(service.workload.requests, np.bool_)


@pytest.mark.parametrize("over", [0.05, 0.2, 1.0])
def test_waits_grow_by_the_overload(over: float) -> None:
    even = one_at_a_time(requests(np.arange(COUNT) / (1 + over)), 1.0)
    assert growth(even, every(even)) == pytest.approx(over, rel=0.01)


def test_chance_hides_little_of_an_overload() -> None:
    found = [growth(one, every(one)) for one in (poisson(1.3, seed) for seed in range(100, 105))]
    assert min(found) > 0.1 and np.mean(found) == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_queue_that_comes_and_goes_does_not_grow(load: float) -> None:
    found = [growth(one, every(one)) for one in (poisson(load, seed) for seed in range(100, 110))]
    assert np.mean(np.array(found) > 0.02) <= 0.1


def test_few_requests_say_nothing() -> None:
    few = one_at_a_time(requests(np.arange(20) / 2), 1.0)
    assert growth(few, every(few)) == 0.0
    assert growth(few, np.zeros(20, np.bool_)) == 0.0


def test_where_more_comes_waits_say_nothing() -> None:
    arrival = np.arange(COUNT) / 1.5
    prompts = np.where(arrival > arrival.mean(), 100, 10)
    more = one_at_a_time(requests(arrival, prompt_tokens=prompts), 1.0)
    assert growth(more, every(more)) == 0.0


def test_a_place_in_the_second_pool_is_waited_for() -> None:
    """Prompts at once, answers one after the other at twice the rate that they are made at."""
    first = one_at_a_time(requests(np.arange(COUNT) * 2.0), 1.0)
    second = one_at_a_time(requests(first.finish_s), 4.0)
    both = replace(first, runs=(*first.runs, *second.runs), handed_over=np.arange(COUNT), finish_s=second.finish_s)
    assert growth(first, every(first)) == 0.0
    assert growth(both, every(both)) == pytest.approx(1.0, rel=0.01)


def test_a_time_per_token_that_rises() -> None:
    service = one_at_a_time(requests(np.arange(COUNT) * 2.0, output_tokens=2), 0.5)
    assert rise(service, every(service)) == 0.0
    slower = service.first_token_s + np.linspace(1.0, 3.0, COUNT)
    assert rise(replace(service, finish_s=slower), every(service)) == pytest.approx(1.0, rel=0.02)
