"""Deployments of one pool and of two, by hand: every step takes a second."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.pools import Pool, RunSettings, Service, Transfer, colocated, disaggregated
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.results import tpot_s
from easybalance_sim.simulate.serving.workload import Workload
from tests.serving_models import constant_model, poisson_workload, random_profiles, roomy_limits, skewed_model


def workload(prompt: list[int], output: list[int]) -> Workload:
    zeros = np.zeros(len(prompt), np.int32)
    return Workload(
        arrival_s=np.zeros(len(prompt)),
        prompt_tokens=np.array(prompt, np.int32),
        output_tokens=np.array(output, np.int32),
        cached_tokens=zeros,
        tenant=zeros,
        tenants=("",),
    )


def handed(prompt: list[int], output: list[int], transfer: Transfer, **limits: int) -> Service:
    requests = workload(prompt, output)
    rows = np.zeros(len(prompt), np.int32)
    pool = Pool(limits=roomy_limits(), model=constant_model(1.0))
    decode = Pool(limits=roomy_limits(**limits), model=constant_model(1.0))
    return disaggregated(requests, Profiles(prefill=rows, decode=rows), pool, decode, transfer, RunSettings())


def test_a_cache_travels_before_the_second_token() -> None:
    """Twenty tokens take 2 + 0.5 seconds: the client has its first at 3.5, then two steps; an answer of one
    token stays."""
    service = handed([20, 20], [3, 1], Transfer(bytes_per_token=10.0, bytes_per_s=100.0, latency_s=0.5))
    assert service.first_token_s.tolist() == [3.5, 1.0]
    assert service.finish_s.tolist() == [5.5, 1.0]
    assert service.handed_over.tolist() == [0]
    assert [(run.prompt_tokens, run.decode_tokens) for run in service.runs] == [(40, 0), (1, 1)]


def test_short_prompts_overtake_long_ones() -> None:
    service = handed([30, 10], [2, 2], Transfer(bytes_per_token=1.0, bytes_per_s=1.0))
    assert service.handed_over.tolist() == [1, 0]
    assert service.finish_s.tolist() == [32.0, 12.0]


def test_what_the_second_pool_refuses_is_refused() -> None:
    service = handed([30, 10], [2, 2], Transfer(bytes_per_token=0.0, bytes_per_s=1.0), kv_blocks=1, block_tokens=20)
    assert service.refused.tolist() == [True, False]
    np.testing.assert_array_equal(service.first_token_s, [np.nan, 1.0])
    assert np.isnan(service.finish_s).tolist() == [True, False]


def test_waiting_for_a_place_to_decode_is_waiting_for_the_first_token() -> None:
    """One place: the second answer begins when the first one's three further tokens are done."""
    service = handed([10, 10], [4, 4], Transfer(bytes_per_token=0.0, bytes_per_s=1.0), running=1)
    assert service.first_token_s.tolist() == [1.0, 4.0]
    assert tpot_s(service).tolist() == [1.0, 1.0]


def test_nobody_comes_to_the_second_pool() -> None:
    service = handed([3, 3], [1, 1], Transfer(bytes_per_token=1.0, bytes_per_s=1.0))
    assert len(service.runs) == 1 and service.finish_s.tolist() == [1.0, 1.0]


def test_prompts_of_their_own_pool_wait_for_no_answers() -> None:
    """The same pool twice, first tokens are computed no later than with one pool, whose answers stand in the way of
    prompts."""
    requests, model = poisson_workload(5, 200, 900.0, prompt=(1, 60), output=(1, 30)), skewed_model(5)
    profile, pool = random_profiles(5, requests, model), Pool(limits=roomy_limits(), model=model)
    told: list[int] = []
    settings = RunSettings(bucket_s=0.01, samples=4, progress=told.append)
    one = colocated(requests, profile, pool, settings)
    two = disaggregated(requests, profile, pool, pool, Transfer(bytes_per_token=0.0, bytes_per_s=1.0), settings)
    assert (two.runs[0].first_token_s - requests.arrival_s).mean() < (one.first_token_s - requests.arrival_s).mean()
    assert (two.first_token_s >= two.runs[0].first_token_s).all()
    assert np.isfinite(one.finish_s).all() and np.isfinite(two.finish_s).all()
    assert sum(told) == 200 + 200 + len(two.handed_over)
    assert all(len(run.timeline.steps) > 1 and run.samples for run in (*one.runs, *two.runs))
    assert one.runs[0].decode_tokens == (requests.output_tokens - 1).sum()


def test_each_pool_has_rows_of_its_own_model() -> None:
    """The second pool's model knows three routed requests, the first one's a single one."""
    requests = workload([20], [3])
    few, many = skewed_model(0, requests=1), skewed_model(0, requests=3)
    rows = [Profiles(prefill=np.full(1, q, np.int32), decode=np.full(1, q, np.int32)) for q in (0, 2)]
    prefill, decode = (Pool(limits=roomy_limits(), model=model) for model in (few, many))
    transfer = Transfer(bytes_per_token=0.0, bytes_per_s=1.0)
    service = disaggregated(requests, rows[0], prefill, decode, transfer, RunSettings(), decode_profile=rows[1])
    assert np.isfinite(service.finish_s).all()
    with pytest.raises(UsageError, match="a row outside"):
        disaggregated(requests, rows[1], prefill, decode, transfer, RunSettings(), decode_profile=rows[1])


@pytest.mark.parametrize("wrong", [(-1.0, 1.0, 0.0), (1.0, 0.0, 0.0), (1.0, 1.0, -1.0)])
def test_transfers_that_cannot_be(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(UsageError, match="transfer"):
        Transfer(bytes_per_token=wrong[0], bytes_per_s=wrong[1], latency_s=wrong[2])
