"""What a scenario is served with: plans, step models, memory, requests at a rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.cost.reduction import reduction_seconds
from easybalance_sim.deployment.prepare import AFTER, BEFORE, EVEN, Prepared, prepare, workload_at
from easybalance_sim.deployment.scenario import Scenario, load_scenario
from easybalance_sim.deployment.stations import evened
from easybalance_sim.errors import UsageError
from tests.listeners import Heard
from tests.small_scenario import TWO_POOLS, small_scenario


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return load_scenario(small_scenario(tmp_path_factory.mktemp("one")))


@pytest.fixture(scope="module")
def ready(scenario: Scenario) -> Prepared:
    return prepare(scenario, Heard())


def _engine(scenario: Scenario, **changes: Any) -> Scenario:
    assert scenario.pool is not None
    engine = msgspec.structs.replace(scenario.pool.engine, **changes)
    return msgspec.structs.replace(scenario, pool=msgspec.structs.replace(scenario.pool, engine=engine))


def test_before_and_after_differ_in_plan_and_slots_alone(ready: Prepared) -> None:
    (before,), (after,) = ready.stations(BEFORE), ready.stations(AFTER)
    assert (before.plan.policy, before.plan.slots, after.plan.slots) == ("contiguous", 64, 72)
    assert before.model.attention == after.model.attention and before.model.outside == after.model.outside
    assert before.limits == after.limits and before.kv_tokens == 400 * 16 * 4


def test_ranks_loaded_alike_cost_less_and_lose_nothing(ready: Prepared) -> None:
    (after,), (even,) = ready.stations(AFTER), ready.stations(EVEN)
    assert np.allclose(even.model.mean.sum(axis=2), after.model.mean.sum(axis=2), rtol=1e-5)
    assert np.ptp(even.model.mean, axis=2).max() == 0 and not even.model.spread.any()
    assert np.array_equal(even.model.expert_s[:, 0], after.model.even_expert_s)
    again = evened(even.model)
    assert np.array_equal(again.mean, even.model.mean) and np.array_equal(again.expert_s, even.model.expert_s)


def test_the_ground_serves_other_clusters(scenario: Scenario, ready: Prepared) -> None:
    assert scenario.pool is not None
    cluster = msgspec.structs.replace(scenario.pool.cluster, ranks=8, slots_per_rank=10)
    wider = msgspec.structs.replace(scenario, pool=msgspec.structs.replace(scenario.pool, cluster=cluster))
    heard = Heard()
    (after,) = prepare(wider, heard, ready.ground).stations(AFTER)
    assert (after.plan.ranks, after.plan.slots, after.model.ranks) == (8, 80, 8)
    assert "scanning the trace" not in heard.stages


def test_pools_have_plans_of_their_own_traffic(tmp_path: Path) -> None:
    ready = prepare(load_scenario(small_scenario(tmp_path, TWO_POOLS)), Heard())
    prefill, decode = ready.stations(AFTER)
    assert (prefill.session.phase, prefill.session.bench.mode, prefill.plan.ranks) == ("prefill", "normal", 2)
    assert (decode.session.phase, decode.session.bench.mode, decode.plan.ranks) == ("decode", "low_latency", 4)


def test_experts_that_gpus_share_pay_for_sums(scenario: Scenario, ready: Prepared) -> None:
    (shared,) = prepare(_engine(scenario, expert_tensor=2), Heard(), ready.ground).stations(AFTER)
    (alone,) = ready.stations(AFTER)
    assert shared.pool.gpus == 8 and shared.session.shape.intermediate * 2 == alone.session.shape.intermediate
    assert shared.model.attention.fixed > alone.model.attention.fixed


def test_gpus_add_up_what_arrives_not_what_their_own_requests_have(scenario: Scenario, ready: Prepared) -> None:
    """A token of any data-parallel rank is added up on every rank that holds one of its experts."""
    (shared,) = prepare(_engine(scenario, expert_tensor=2), Heard(), ready.ground).stations(AFTER)
    model, top_k = shared.model, shared.session.shape.top_k
    each = reduction_seconds(shared.session.hardware, shared.session.shape.width, 2)
    arrive = model.sum_row_s.mean() / each.token * top_k
    assert model.sum_fixed_s == each.fixed and 1 < arrive < min(top_k, model.ranks)
    assert not ready.stations(AFTER)[0].model.sum_row_s.any()
    even = evened(model)
    assert np.ptp(even.summing_s, axis=1).max() == 0 and np.allclose(even.summing_s[:, 0], model.summing_s.mean(axis=1))


def test_a_step_holds_no_more_of_a_prompt_than_tokens_at_all(scenario: Scenario, ready: Prepared) -> None:
    usual = ready.stations(AFTER)[0].model.run_tokens
    (short,) = prepare(_engine(scenario, batch_tokens=usual - 1), Heard(), ready.ground).stations(AFTER)
    assert short.model.run_tokens == usual - 1


def test_a_rate_keeps_the_run_as_long(scenario: Scenario, ready: Prepared) -> None:
    for rate in (20.0, 400.0):
        load = workload_at(scenario, rate)
        assert load.rate_per_s == pytest.approx(rate) and load.span_s == pytest.approx(2.0, rel=0.3)
    with pytest.raises(UsageError):
        workload_at(scenario, 0.0)


def test_memory_that_nobody_knows_has_to_be_said(scenario: Scenario, ready: Prepared) -> None:
    with pytest.raises(UsageError, match=r"engine.kv_blocks.* is not known"):
        prepare(_engine(scenario, kv_blocks=0), Heard(), ready.ground)


def test_replicas_take_kv_cache() -> None:
    scenario = load_scenario(Path(__file__).parents[2] / "scenarios" / "steady-chat.toml")
    assert scenario.pool is not None
    placement = msgspec.structs.replace(scenario.pool.placement, after="eplb")
    named = msgspec.structs.replace(scenario, pool=msgspec.structs.replace(scenario.pool, placement=placement))
    ready = prepare(named, Heard())
    (before,), (after,) = ready.stations(BEFORE), ready.stations(AFTER)
    assert after.plan.slots > before.plan.slots and after.kv_tokens < before.kv_tokens
    assert before.memory is not None and after.memory is not None
    lost = after.memory.experts - before.memory.experts
    assert lost == after.session.shape.expert_bytes * 26
    assert before.kv_tokens - after.kv_tokens == pytest.approx(8 * lost / after.memory.token_bytes, rel=0.1)


def test_weights_that_do_not_fit_are_refused() -> None:
    scenario = load_scenario(Path(__file__).parents[2] / "scenarios" / "steady-chat.toml")
    with pytest.raises(UsageError, match="leave no room for KV cache"):
        prepare(_engine(scenario, memory_frac=0.03), Heard())


def test_nodes_of_unequal_size_are_said(scenario: Scenario) -> None:
    assert scenario.pool is not None
    cluster = msgspec.structs.replace(scenario.pool.cluster, ranks_per_node=3)
    uneven, heard = (
        msgspec.structs.replace(scenario, pool=msgspec.structs.replace(scenario.pool, cluster=cluster)),
        Heard(),
    )
    prepare(uneven, heard)
    assert any("nodes of unequal size" in note for note in heard.notes)
