"""What users feel, by hand: one request at a time, a second per step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.pools import Pool, RunSettings, Service, colocated
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.results import Results, Slo, inside_slo, summarised, tpot_s, ttft_s
from easybalance_sim.simulate.serving.workload import Workload
from tests.serving_models import constant_model, poisson_workload, random_profiles, roomy_limits, skewed_model

SLO = Slo(ttft_s=2.0, tpot_s=1.5)


def service(arrival: list[float], output: list[int], **limits: int) -> Service:
    count = len(arrival)
    zeros = np.zeros(count, np.int32)
    workload = Workload(
        arrival_s=np.array(arrival),
        prompt_tokens=np.full(count, 10, np.int32),
        output_tokens=np.array(output, np.int32),
        cached_tokens=zeros,
        tenant=zeros,
        tenants=("",),
    )
    pool = Pool(limits=roomy_limits(running=1, **limits), model=constant_model(1.0))
    return colocated(workload, Profiles(prefill=zeros, decode=zeros), pool, RunSettings(bucket_s=1.0))


def figures(found: Results) -> tuple[int, int, int, int]:
    return found.requests, found.finished, found.refused, found.unfinished


def test_a_queue_of_three() -> None:
    """They start at 0, 3 and 4 and end at 3, 4 and 6."""
    done = service([0.0, 0.0, 1.0], [3, 1, 2])
    assert ttft_s(done).tolist() == [1.0, 4.0, 4.0]
    assert tpot_s(done).tolist() == [1.0, 0.0, 1.0]
    assert inside_slo(done, SLO).tolist() == [True, False, False]
    found = summarised(done, SLO, to_s=10.0)
    assert figures(found) == (3, 3, 0, 0)
    assert (found.ttft.mean, found.ttft.p50, found.ttft.p99) == pytest.approx((3.0, 4.0, 4.0))
    assert (found.tpot.count, found.tpot.mean) == (2, 1.0)
    assert found.end_to_end.p95 == pytest.approx(4.9)
    assert (found.goodput_per_s, found.inside_frac) == pytest.approx((0.1, 1 / 3))
    assert (found.finished_per_s, found.prompt_tokens_per_s, found.output_tokens_per_s) == pytest.approx((0.3, 3, 0.6))


def test_only_what_arrives_in_between_counts() -> None:
    done = service([0.0, 4.0, 5.0, 9.0], [1, 2, 1, 1])
    found = summarised(done, SLO, from_s=4.0, to_s=6.5)
    assert figures(found) == (2, 2, 0, 0)
    assert found.ttft.count == 2
    assert found.finished_per_s == pytest.approx(1 / 2.5)
    assert found.output_tokens_per_s == pytest.approx(2 / 2.5)


def test_tokens_count_where_they_come_not_where_answers_end() -> None:
    """One a second up to 101: no answer ends in the window."""
    done = service([0.0], [101])
    found = summarised(done, SLO, to_s=51.0)
    assert found.finished_per_s == 0
    assert found.output_tokens_per_s == pytest.approx(51 / 51)
    assert found.prompt_tokens_per_s == pytest.approx(10 / 51)
    quarter = summarised(service([0.0, 0.0], [101, 1]), SLO, from_s=0.0, to_s=0.25)
    assert (quarter.output_tokens_per_s, quarter.prompt_tokens_per_s) == pytest.approx((0.0, 10.0))


def test_what_was_refused_is_not_inside() -> None:
    found = summarised(service([0.0, 0.0, 0.0], [1, 1, 1], waiting=2), Slo(ttft_s=9.0, tpot_s=9.0), to_s=1.0)
    assert figures(found) == (3, 2, 1, 0)
    assert found.inside_frac == pytest.approx(2 / 3)


def test_without_an_end_the_last_arrival_counts_too() -> None:
    assert summarised(service([0.0, 4.0], [1, 1]), SLO).requests == 2
    at_once = summarised(service([0.0, 0.0], [1, 1]), SLO)
    assert (at_once.requests, at_once.to_s, at_once.goodput_per_s) == pytest.approx((2, 2.0, 1.0))


def test_without_a_further_token_there_is_no_time_per_token() -> None:
    found = summarised(service([0.0, 4.0], [1, 1]), SLO)
    assert found.tpot.count == 0 and np.isnan(found.tpot.p99)


def test_an_empty_span_is_refused() -> None:
    with pytest.raises(UsageError, match="no request arrives from 5 to 6 s"):
        summarised(service([0.0], [1]), SLO, from_s=5.0, to_s=6.0)
    with pytest.raises(UsageError, match="slo"):
        Slo(ttft_s=0.0, tpot_s=1.0)


def test_how_a_pool_was_used() -> None:
    (use,) = summarised(service([0.0, 0.0, 8.0], [2, 2, 1]), SLO).pools
    assert (use.idle_frac, use.running, use.waiting, use.waited_frac) == pytest.approx((4 / 9, 1.0, 0.4, 0.4))
    assert (use.preemptions, use.balanced_speedup) == (0, 1.0)
    assert use.kv_frac == use.kv_peak_frac == pytest.approx(1 / (1 << 20))


def test_even_ranks_would_save_what_was_lost() -> None:
    workload, model = poisson_workload(2, 200, 900.0, prompt=(1, 60), output=(1, 30)), skewed_model(2)
    pool = Pool(limits=roomy_limits(), model=model)
    run = colocated(workload, random_profiles(2, workload, model), pool, RunSettings())
    (use,) = summarised(run, SLO).pools
    (whole,) = run.runs
    assert sum(use.lost_s.values()) > 0
    assert use.balanced_speedup == pytest.approx(whole.step_s / (whole.step_s - sum(use.lost_s.values())))
    even = replace(
        model,
        mean=np.broadcast_to(model.mean.mean(axis=2, keepdims=True), model.mean.shape),
        spread=np.zeros_like(model.spread),
        expert_s=np.broadcast_to(model.even_expert_s[:, None], model.expert_s.shape),
        sum_row_s=np.broadcast_to(model.sum_row_s.mean(axis=1, keepdims=True), model.sum_row_s.shape),
    )
    again = colocated(workload, random_profiles(2, workload, even), Pool(limits=pool.limits, model=even), RunSettings())
    (other,) = summarised(again, SLO).pools
    assert other.balanced_speedup == pytest.approx(1.0)
    assert (other.busy_frac > 0).all()
    assert (again.finish_s - workload.arrival_s).mean() < (run.finish_s - workload.arrival_s).mean()
