"""The plan that is taken where a scenario leaves it open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.deployment import choosing
from easybalance_sim.deployment.choosing import CANDIDATES, WORTH, Choice, choose, worth_taking
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import halved
from easybalance_sim.deployment.placing import place
from easybalance_sim.deployment.prepare import Prepared, prepare
from easybalance_sim.deployment.scenario import Scenario, load_scenario
from easybalance_sim.deployment.stations import station
from easybalance_sim.errors import UsageError
from easybalance_sim.load.split import FIT, HELD_OUT, NEITHER, Split
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
        ready.ground.rehearsals, first.pool, after.session, [first.plan] * 2, ready.workload, 0.0, Heard(),
        proposals=1000, prompt_tokens=50.0, seed=0,
    )  # fmt: skip


def _taken(times: list[list[float]], refused: list[list[float]] | None = None) -> int:
    turned_away = np.zeros(np.shape(times)) if refused is None else np.array(refused)
    return Choice(candidates=(), worth=worth_taking(np.array(times), turned_away)).taken


def test_the_plan_before_stays_unless_another_is_faster_by_enough_in_every_draw() -> None:
    assert _taken([[1.0, 1.0], [0.9, 0.9], [0.5, 0.5], [0.7, 0.7]]) == 2
    assert _taken([[1.0], [1 - WORTH / 2], [1.2]]) == 0 == _taken([[1.0], [2.0]])
    assert _taken([[1.0, 1.0], [1 - 2 * WORTH, 1 - 2 * WORTH]]) == 1
    assert _taken([[1.0, 1.0], [0.5, 0.999]]) == 0


def test_a_plan_that_turns_requests_away_is_not_faster() -> None:
    assert _taken([[1.0, 1.0], [0.5, 0.5]], [[0.0, 0.0], [0.1, 0.0]]) == 0
    assert _taken([[1.0, 1.0], [0.5, 0.5], [0.9, 0.9]], [[0.0, 0.0], [0.1, 0.1], [0.0, 0.0]]) == 2
    assert _taken([[1.0], [0.8], [0.9]], [[0.3], [0.3], [0.2]]) == 2
    assert _taken([[1.0], [1.5]], [[0.3], [0.2]]) == 1
    assert _taken([[1.0], [1.5]], [[0.3], [0.3 - WORTH / 2]]) == 0


def test_requests_that_never_fit_are_told(ready: Prepared) -> None:
    """With a cache for two blocks most prompts do not fit."""
    (first,) = ready.before
    tight = replace(ready, before=(replace(first, pool=_with_blocks(first.pool, 2)),))
    assert all(one.refused_frac > 0.5 for one in _choose(tight).candidates)
    assert all(one.refused_frac == 0 for one in _choose(ready).candidates)


def _with_blocks(pool: Pool, blocks: int) -> Pool:
    return msgspec.structs.replace(pool, engine=msgspec.structs.replace(pool.engine, kv_blocks=blocks))


def test_candidates_serve_what_they_have_not_seen(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that serve in the end, that candidates are made from, and that they are chosen by are three sets."""
    seen: list[Any] = []
    made: list[Any] = []

    def spy(ground: Any, *args: Any, **named: Any) -> Any:
        seen.append(set(ground.routed.request.tolist()))
        return station(ground, *args, **named)

    def spy_on_plans(ground: Any, session: Any, *args: Any, **named: Any) -> Any:
        split = ground.traffic(session).split
        made.append(set(split.request[split.side == FIT].tolist()))
        return place(ground, session, *args, **named)

    monkeypatch.setattr(choosing, "station", spy)
    monkeypatch.setattr(choosing, "place", spy_on_plans)
    choice = _choose(ready)
    assert choice.candidates[0].policy == "contiguous" and set(CANDIDATES) <= {one.policy for one in choice.candidates}
    assert choice.policy == choice.candidates[choice.taken].policy
    serving = set(ready.ground.routed.request.tolist())
    assert made and all(made) and not any(serving & fitted for fitted in made)
    fitted = {frozenset(one) for one in made}
    chosen_by = {frozenset(one) for one in seen}
    assert len(fitted) == len(chosen_by) == 2 and all(chosen_by) and not any(serving & used for used in chosen_by)
    assert not set.intersection(*map(set, fitted)) and fitted == chosen_by
    assert made[0] == seen[-1] != seen[0] == made[-1]


def test_the_winner_is_made_anew_from_both_halves(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    (first,), (after,) = ready.before, ready.after
    open_ = _left_open(ready.scenario)
    monkeypatch.setattr(choosing, "CANDIDATES", ("eplb",))
    monkeypatch.setattr(choosing, "worth_taking", lambda times, refused: (1,))
    found = prepare(open_, Heard(), ready.ground)
    whole = place(ready.ground, after.session, "eplb", Heard()).expert_of_slot
    half = place(ready.ground.rehearsals[0], after.session, "eplb", Heard()).expert_of_slot
    assert np.array_equal(found.after[0].plan.expert_of_slot, whole) and not np.array_equal(whole, half)
    monkeypatch.setattr(choosing, "worth_taking", lambda times, refused: ())
    kept = prepare(open_, Heard(), ready.ground)
    assert np.array_equal(kept.after[0].plan.expert_of_slot, first.plan.expert_of_slot)


def test_a_winner_that_cannot_be_made_anew_leaves_its_place_to_the_next(
    ready: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(ground: Any, session: Any, name: str, *args: Any, **named: Any) -> Any:
        if name == "eplb":
            raise UsageError("batch noise only")
        return place(ground, session, name, *args, **named)

    monkeypatch.setattr(choosing, "CANDIDATES", ("eplb", "round_robin"))
    monkeypatch.setattr(choosing, "worth_taking", lambda times, refused: (1, 2))
    monkeypatch.setattr("easybalance_sim.deployment.prepare.place", refuse)
    found = prepare(_left_open(ready.scenario), Heard(), ready.ground)
    assert found.after[0].plan.policy == "round_robin" == found.choices[0].policy
    monkeypatch.setattr(choosing, "worth_taking", lambda times, refused: (1,))
    kept = prepare(_left_open(ready.scenario), Heard(), ready.ground)
    assert (kept.after[0].plan.policy, kept.choices[0].taken) == ("contiguous", 0)


def test_a_side_of_every_workload_and_none_without_two_requests() -> None:
    side = np.array([FIT] * 7 + [HELD_OUT] * 3, np.int8)
    split = Split(by="request", request=frozen(np.arange(10), np.int64), side=frozen(side))
    workload = np.array([0, 0, 0, 0, 1, 1, 2, 0, 1, 2])
    found = halved(split, workload, 100)
    assert [int((found.side[:4] == side).sum()) for side in (FIT, HELD_OUT)] == [2, 2]
    assert sorted(found.side[4:6].tolist()) == [FIT, HELD_OUT] and found.side[6] == FIT
    assert (found.side[7:] == NEITHER).all()
    with pytest.raises(UsageError, match="too few to choose one by"):
        halved(split, np.arange(10), 100)


def _left_open(scenario: Scenario) -> Scenario:
    assert scenario.pool is not None
    placement = msgspec.structs.replace(scenario.pool.placement, after="auto")
    return msgspec.structs.replace(scenario, pool=msgspec.structs.replace(scenario.pool, placement=placement))


def test_the_choice_is_left_open_by_auto_alone(
    scenario: Scenario, ready: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scenario.pool is not None and ready.choices == () and ready.after[0].plan.policy == "window_search"
    monkeypatch.setattr(choosing, "CANDIDATES", ("eplb",))
    found = prepare(_left_open(scenario), Heard(), ready.ground)
    (choice,) = found.choices
    assert [one.policy for one in choice.candidates] == ["contiguous", "eplb"]
    assert found.after[0].plan.policy == choice.policy


def test_some_layers_stand_for_all(ready: Prepared) -> None:
    (after,) = ready.after
    few = station(ready.ground, after.pool, after.session, after.plan, prompt_tokens=50.0, seed=0, layers=2)
    assert few.model.layers == after.model.layers == 8
    assert np.array_equal(few.model.mean[:, 0], few.model.mean[:, 3])
    for layer in (0, 7):
        assert np.allclose(few.model.mean[:, layer], after.model.mean[:, layer], rtol=0.05)
