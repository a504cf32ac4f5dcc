"""Continuous batching on cases small enough to follow by hand."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.trace.batching import ages, arrival_steps, queue_order, schedule, token_steps


def test_a_freed_slot_takes_the_next_request() -> None:
    plan = schedule(np.array([3, 1, 2, 4]), concurrency=2)
    assert plan.start.tolist() == [0, 0, 1, 3]
    # The third request ends with step 2, so from step 3 one of the two slots finds no request.
    assert plan.full_until == 3
    assert token_steps(plan).tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 6]


def test_fewer_requests_than_slots_never_fill_the_server() -> None:
    assert schedule(np.array([5, 5]), concurrency=3).full_until == 0


def test_arrivals_delay_a_start_and_full_slots_delay_it_further() -> None:
    plan = schedule(np.array([4, 4, 1]), concurrency=1, arrival_step=np.array([2, 3, 50]))
    assert plan.start.tolist() == [2, 6, 50]


def test_arrival_times_round_up_to_the_step_clock() -> None:
    steps = arrival_steps(np.array([100.0, 100.025, 100.026, 100.1]), 4, 0.025, "arrivals.csv")
    assert steps.tolist() == [0, 1, 2, 4]


def test_too_few_arrivals_are_refused() -> None:
    with pytest.raises(UsageError, match=r"a\.csv: 1 arrivals for 2 requests"):
        arrival_steps(np.array([0.0]), 2, 0.025, "a.csv")


@pytest.mark.parametrize("step_s", [0.0, -0.025])
def test_a_step_clock_must_tick(step_s: float) -> None:
    with pytest.raises(UsageError, match="step-ms"):
        arrival_steps(np.array([0.0]), 1, step_s, "a.csv")


def test_concurrency_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="--concurrency is 0"):
        schedule(np.array([1]), concurrency=0)


def test_only_the_first_requests_have_tokens_behind_them_and_each_keeps_one() -> None:
    age = ages(np.full(400, 10), concurrency=300, seed=1)
    assert (age[300:] == 0).all()
    assert set(age[:300].tolist()) == set(range(10))
    assert age.tolist() != ages(np.full(400, 10), concurrency=300, seed=2).tolist()
    assert ages(np.ones(5, np.int64), concurrency=3, seed=0).tolist() == [0] * 5


def test_orders() -> None:
    workload = np.array([1, 0, 1, 0])
    assert queue_order("file", workload, 0).tolist() == [0, 1, 2, 3]
    assert queue_order("by-workload", workload, 0).tolist() == [1, 3, 0, 2]
    shuffled = queue_order("shuffled", np.zeros(50), 1)
    assert sorted(shuffled.tolist()) == list(range(50))
    assert shuffled.tolist() == queue_order("shuffled", np.zeros(50), 1).tolist()
    assert shuffled.tolist() != queue_order("shuffled", np.zeros(50), 2).tolist()
    with pytest.raises(UsageError, match="shuffled, file, by-workload"):
        queue_order("random", workload, 0)
