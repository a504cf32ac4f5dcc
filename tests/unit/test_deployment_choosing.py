"""The plan that is taken where a scenario leaves it open."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.deployment import choosing
from easybalance_sim.deployment.choosing import CANDIDATES, WORTH, Choice, choose, taken_of
from easybalance_sim.deployment.prepare import Prepared, prepare
from easybalance_sim.deployment.scenario import Scenario, load_scenario
from easybalance_sim.deployment.stations import station
from tests.listeners import Heard
from tests.small_scenario import small_scenario


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return load_scenario(small_scenario(tmp_path_factory.mktemp("one")))


@pytest.fixture(scope="module")
def ready(scenario: Scenario) -> Prepared:
    return prepare(scenario, Heard())


def _choose(ready: Prepared) -> Choice:
    (first,), (after,) = ready.before, ready.after
    return choose(
        ready.ground, first.pool, after.session, first.plan, ready.workload, 0.0, Heard(),
        proposals=1000, prompt_tokens=50.0, seed=0,
    )  # fmt: skip


def test_the_plan_before_stays_unless_another_is_faster_by_enough_in_every_draw() -> None:
    assert taken_of(np.array([[1.0, 1.0], [0.9, 0.9], [0.5, 0.5], [0.7, 0.7]])) == 2
    assert taken_of(np.array([[1.0], [1 - WORTH / 2], [1.2]])) == 0 == taken_of(np.array([[1.0], [2.0]]))
    assert taken_of(np.array([[1.0, 1.0], [1 - 2 * WORTH, 1 - 2 * WORTH]])) == 1
    assert taken_of(np.array([[1.0, 1.0], [0.5, 0.999]])) == 0


def test_nothing_that_serves_is_looked_at(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def spy(ground: Any, *args: Any, **named: Any) -> Any:
        seen.append(ground.routed)
        return station(ground, *args, **named)

    monkeypatch.setattr(choosing, "station", spy)
    choice = _choose(ready)
    assert choice.candidates[0].policy == "contiguous" and set(CANDIDATES) <= {one.policy for one in choice.candidates}
    assert choice.plan.policy == choice.candidates[choice.taken].policy
    serving = set(ready.ground.routed.request.tolist())
    assert seen and not any(serving & set(routed.request.tolist()) for routed in seen)


def test_the_choice_is_left_open_by_auto_alone(
    scenario: Scenario, ready: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scenario.pool is not None and ready.choices == () and ready.after[0].plan.policy == "window_search"
    monkeypatch.setattr(choosing, "CANDIDATES", ("eplb",))
    placement = msgspec.structs.replace(scenario.pool.placement, after="auto")
    open_ = msgspec.structs.replace(scenario, pool=msgspec.structs.replace(scenario.pool, placement=placement))
    found = prepare(open_, Heard(), ready.ground)
    (choice,) = found.choices
    assert [one.policy for one in choice.candidates] == ["contiguous", "eplb"]
    assert found.after[0].plan is choice.plan


def test_some_layers_stand_for_all(ready: Prepared) -> None:
    (after,) = ready.after
    few = station(ready.ground, after.pool, after.session, after.plan, prompt_tokens=50.0, seed=0, layers=2)
    assert few.model.layers == after.model.layers == 8
    assert np.array_equal(few.model.mean[:, 0], few.model.mean[:, 3])
    assert np.allclose(few.model.mean[:, 0], after.model.mean[:, 0])
    assert np.allclose(few.model.mean[:, 7], after.model.mean[:, 7])
