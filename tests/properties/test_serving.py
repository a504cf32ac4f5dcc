"""What no workload, limit, router or role can change; that nothing is lost is checked in every run by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.kernel_arrays import ROLES
from easybalance_sim.simulate.serving.limits import ROUTERS, SCHEDULES, Limits
from easybalance_sim.simulate.serving.pool_run import PoolRun
from easybalance_sim.simulate.serving.pools import Pool, RunSettings, Transfer, disaggregated
from easybalance_sim.simulate.serving.workload import Workload
from tests.serving_models import poisson_workload, random_profiles, skewed_model


@st.composite
def _limits(draw: st.DrawFn) -> Limits:
    """Small in every way, so that each of them binds in some step."""
    return Limits(
        batch_tokens=draw(st.integers(1, 40)),
        chunk_tokens=draw(st.integers(1, 20)),
        running=draw(st.integers(1, 8)),
        kv_blocks=draw(st.integers(4, 24)),
        block_tokens=draw(st.integers(1, 6)),
        waiting=draw(st.sampled_from((0, 0, 1, 5))),
        router=draw(st.sampled_from(ROUTERS)),
        schedule=draw(st.sampled_from(SCHEDULES)),
    )


@st.composite
def _workloads(draw: st.DrawFn, most: int = 40) -> Workload:
    return poisson_workload(
        draw(st.integers(0, 2**20)),
        draw(st.integers(1, most)),
        draw(st.sampled_from((20.0, 1000.0, 1e6))),
        prompt=(1, draw(st.integers(1, 50))),
        output=(1, draw(st.integers(1, 30))),
        cached_frac=draw(st.sampled_from((0.0, 0.9))),
        tenants=5,
    )


def _run(workload: Workload, limits: Limits, seed: int, **given: Any) -> PoolRun:
    model = skewed_model(seed, layers=2, hidden=0.5, chance=0.3)
    return serve(workload, random_profiles(seed, workload, model), limits, model, seed=seed, **given)


@pytest.mark.parametrize("backend", ["numba", "reference"])
@pytest.mark.parametrize("role", ROLES)
@settings(max_examples=25, deadline=None)
@given(workload=_workloads(), limits=_limits(), seed=st.integers(0, 99))
def test_every_request_is_answered_or_refused(
    role: str, backend: str, workload: Workload, limits: Limits, seed: int
) -> None:
    run = _run(workload, limits, seed, role=role, backend=backend)
    done = run.finished
    assert (done ^ run.refused).all() and run.arrived == workload.requests and run.unfinished == 0
    assert (run.data_rank[done] >= 0).all() and (run.data_rank[run.refused] == -1).all()
    assert (workload.arrival_s[done] <= run.start_s[done]).all()
    assert (run.start_s[done] <= run.first_token_s[done]).all()
    assert (run.first_token_s[done] <= run.finish_s[done]).all()
    assert run.end_s == run.finish_s[done].max(initial=workload.span_s)
    assert run.timeline.kv_frac.max() <= 1.0 + 1e-9
    came = workload.prompt_tokens if role == "decode" else workload.cached_tokens
    whole = workload.prompt_tokens + (0 if role == "prefill" else workload.output_tokens - 1)
    once = np.where(run.preemptions > 0, whole, whole - came)[done].sum()
    assert run.prompt_tokens + run.decode_tokens == once + run.dropped_tokens


@settings(max_examples=25, deadline=None)
@given(workload=_workloads(), limits=_limits(), seed=st.integers(0, 99), role=st.sampled_from(ROLES))
def test_a_cut_run_begins_like_the_whole_one(workload: Workload, limits: Limits, seed: int, role: str) -> None:
    whole = _run(workload, limits, seed, role=role)
    end_s = 0.6 * whole.end_s
    if not end_s > 0:
        return
    cut = _run(workload, limits, seed, role=role, end_s=end_s, samples=3, bucket_s=end_s / 7)
    before = whole.finish_s <= end_s
    np.testing.assert_array_equal(cut.finish_s[before], whole.finish_s[before])
    assert cut.arrived >= (workload.arrival_s <= end_s).sum()
    assert cut.steps <= whole.steps and cut.end_s <= whole.end_s


@settings(max_examples=25, deadline=None)
@given(workload=_workloads(), seed=st.integers(0, 99), schedule=st.sampled_from(SCHEDULES))
def test_room_for_all_means_no_preemption_and_no_waiting(workload: Workload, seed: int, schedule: str) -> None:
    run = _run(workload, Limits(kv_blocks=10_000, running=64, schedule=schedule), seed)
    assert run.preemptions.sum() == run.refused.sum() == run.dropped_tokens == 0
    assert run.timeline.waiting.sum() == 0
    steps_between = run.first_token_s - run.start_s
    assert (steps_between > 0).all()


@settings(max_examples=15, deadline=None)
@given(workload=_workloads(), limits=_limits(), seed=st.integers(0, 99))
def test_two_pools_answer_like_one(workload: Workload, limits: Limits, seed: int) -> None:
    """What the decode pool can hold is answered; its client has a first token once the cache has travelled."""
    model = skewed_model(seed, layers=2)
    pool = Pool(limits=limits, model=model)
    transfer = Transfer(bytes_per_token=1e3, bytes_per_s=1e6)
    profile = random_profiles(seed, workload, model)
    service = disaggregated(workload, profile, pool, pool, transfer, RunSettings(seed=seed))
    done = np.isfinite(service.finish_s)
    assert (done ^ service.refused).all()
    more = done & (workload.output_tokens > 1)
    arrives = service.runs[0].finish_s + transfer.seconds(workload)
    assert (service.first_token_s[more] >= arrives[more]).all()
    assert (service.finish_s[more] > service.first_token_s[more]).all()
    assert (service.finish_s[done & ~more] == service.first_token_s[done & ~more]).all()


@settings(max_examples=10, deadline=None)
@given(workload=_workloads(), limits=_limits(), seed=st.integers(0, 99), role=st.sampled_from(ROLES))
def test_a_run_is_the_same_again(workload: Workload, limits: Limits, seed: int, role: str) -> None:
    one, other = (_run(workload, limits, seed, role=role) for _ in range(2))
    np.testing.assert_array_equal(one.finish_s, other.finish_s)
    assert one.seconds == other.seconds
