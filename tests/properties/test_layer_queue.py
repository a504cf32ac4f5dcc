"""What no order of serving can change or pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.simulate.layer_queue.queue import RULES, Jobs, run
from tests.layer_queues import whole_second_jobs


@st.composite
def _jobs(draw: st.DrawFn) -> Jobs:
    lanes = draw(st.integers(1, 4))
    batches, stages, ranks = draw(st.integers(lanes, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return whole_second_jobs(draw(st.integers(0, 2**20)), batches, stages, ranks, lanes)


@settings(max_examples=60, deadline=None)
@given(_jobs(), st.sampled_from(RULES))
def test_work_is_conserved_and_no_bound_is_passed(jobs: Jobs, rule: str) -> None:
    done = run(jobs, rule)
    np.testing.assert_array_equal(done.busy, jobs.work_s)
    assert done.makespan_s >= jobs.lower_bound_s
    assert (done.finish - done.start >= jobs.alone_s).all()
    for lane in range(jobs.lanes):
        own = jobs.lane == lane
        np.testing.assert_array_equal(done.start[own], np.append(0.0, done.finish[own][:-1]))


@settings(max_examples=30, deadline=None)
@given(_jobs(), st.sampled_from(RULES))
def test_ranks_that_serve_nothing_else_wait_for_nobody(jobs: Jobs, rule: str) -> None:
    alone = Jobs(service=jobs.service, delay=jobs.delay, lane=np.zeros_like(jobs.lane), tokens=jobs.tokens)
    done = run(alone, rule)
    assert done.makespan_s == pytest.approx(alone.alone_s.sum())
    np.testing.assert_allclose(done.finish - done.start, alone.alone_s)


@settings(max_examples=30, deadline=None)
@given(_jobs(), st.sampled_from(RULES))
def test_a_run_is_never_longer_than_one_after_the_other(jobs: Jobs, rule: str) -> None:
    """Some rank serves or some micro-batch travels at every moment, each of which counts in one of the two sums."""
    done = run(jobs, rule)
    assert done.makespan_s <= jobs.service.sum() + jobs.delay.sum()


@settings(max_examples=30, deadline=None)
@given(_jobs())
def test_the_tail_is_what_follows_at_least(jobs: Jobs) -> None:
    first = [int(np.flatnonzero(jobs.lane == lane)[0]) for lane in range(jobs.lanes)]
    starts = jobs.tail[first, 0] + jobs.service[first, 0].max(axis=1)
    assert starts.max() == jobs.longest_lane_s
