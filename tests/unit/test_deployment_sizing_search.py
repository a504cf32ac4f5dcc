"""Searches share what they found; numbers of GPUs that cannot be are told apart from those that do not hold."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from easybalance_sim.deployment.prepare import AFTER, AUTO, BEFORE, Prepared, prepare
from easybalance_sim.deployment.scenario import load_scenario
from easybalance_sim.deployment.sizing import search as searching
from easybalance_sim.deployment.sizing.attainment import Attainment
from easybalance_sim.deployment.sizing.search import (
    Search,
    fewest_gpus,
    rates_over,
    rates_with_replicas,
    replica_layouts,
    split_layouts,
)
from easybalance_sim.deployment.sizing.variants import with_plan
from easybalance_sim.simulate.serving.limits import MIXED
from tests.attainments import Deployment
from tests.listeners import Heard
from tests.small_scenario import small_scenario


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Both plans contiguous."""
    scenario = load_scenario(small_scenario(tmp_path_factory.mktemp("one")))
    assert scenario.pool is not None
    placement = msgspec.structs.replace(scenario.pool.placement, after="contiguous")
    pool = msgspec.structs.replace(scenario.pool, placement=placement)
    return prepare(msgspec.structs.replace(scenario, pool=pool), Heard())


def holding(most: float, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Every deployment holds as much per GPU."""
    deployment = Deployment(most)

    def attained(prepared: Prepared, key: str, rate_per_s: float, **others: object) -> Attainment:
        gpus = sum(pool.gpus for pool in prepared.scenario.pools)
        return replace(deployment.at(rate_per_s / gpus), rate_per_s=rate_per_s)

    monkeypatch.setattr(searching, "attained", attained)
    return deployment


def test_the_same_plan_is_searched_once(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = holding(25.0, monkeypatch)
    search = Search(seeds=(100,), tolerance=0.05, ground=ready.ground)
    before = search.rate(ready, BEFORE)
    runs = len(deployment.asked)
    assert search.rate(ready, AFTER) is before and len(deployment.asked) == runs
    assert 100 / 1.05 <= before.rate_per_s <= 100.0
    other = search.rate(ready, AFTER, "full")
    assert other is not before and len(deployment.asked) - runs <= runs


@pytest.mark.parametrize(("rate", "least"), [(20.0, 1), (60.0, 3), (70.0, 3), (110.0, 5), (320.0, 13), (1000.0, 0)])
def test_any_number_of_gpus(rate: float, least: int, ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    holding(25.0, monkeypatch)
    told: list[int] = []
    search = Search(seeds=(100,), tolerance=0.05, ground=ready.ground)
    found = fewest_gpus(search, ready.scenario, MIXED, rate, told.append)
    assert found.gpus == {BEFORE: least, AFTER: least}
    assert len(told) == len(found.tried) and list(found.tried) == sorted(found.tried)


def test_clusters_that_cannot_be_hold_nothing(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no blocks said, nobody knows what this model leaves of the memory."""
    holding(1e9, monkeypatch)
    assert ready.scenario.pool is not None
    engine = msgspec.structs.replace(ready.scenario.pool.engine, kv_blocks=0)
    pool = msgspec.structs.replace(ready.scenario.pool, engine=engine)
    found = fewest_gpus(
        Search(seeds=(100,), tolerance=0.05, ground=ready.ground),
        msgspec.structs.replace(ready.scenario, pool=pool),
        MIXED,
        1.0,
        lambda units: None,
    )
    assert found.gpus == {BEFORE: 0, AFTER: 0}
    assert all(isinstance(one, str) and "is not known" in one for one in found.tried.values())


def test_the_scenario_s_own_layout_is_not_searched_again(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = holding(25.0, monkeypatch)
    search = Search(seeds=(100,), tolerance=0.05, ground=ready.ground)
    rate = search.rate(ready, BEFORE)
    runs = len(deployment.asked)
    layouts = split_layouts(ready.scenario, ready.scenario.pools[0])[:1]
    (row,) = rates_over(search, ready.scenario, MIXED, layouts, lambda units: None)
    assert (row.before, row.refused) == (rate, "") and len(deployment.asked) == runs


def test_spare_slots_are_judged_by_a_plan_that_fills_them(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left open, a plan without replicas would serve: every deployment holds as much."""
    holding(25.0, monkeypatch)
    search = Search(seeds=(100,), tolerance=0.05, ground=ready.ground)
    scenario = with_plan(ready.scenario, MIXED, AUTO)
    layouts = replica_layouts(scenario.pools[0], 64, (1,))
    assert [layout.spare for layout in layouts] == [0, 1]
    told: list[int] = []
    none, one = rates_with_replicas(search, scenario, MIXED, layouts, told.append)
    assert (none.replicas, one.replicas, told) == (0, 4, [1, 1])
    assert one.policies[1] in ("window_search", "eplb")
    (named,) = rates_with_replicas(search, ready.scenario, MIXED, layouts[1:], told.append)
    assert (named.policies[1], named.replicas) == ("contiguous", 0)
