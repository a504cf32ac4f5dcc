"""Plans of a deployment: policies by name on the fitting half, or a plan file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.deployment.ground import Ground, ground_of
from easybalance_sim.deployment.placing import place, without_replicas
from easybalance_sim.deployment.routing import repeated
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.planning.session import Session
from easybalance_sim.simulate.serving.limits import MIXED
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.synthesis import Recipe, synthesise
from tests.listeners import Heard
from tests.plan_documents import placed_document

CLUSTER = uniform(4, 4, 5)
MIXTURE = Recipe(kind="topic-mixture", layers=2, experts=16, top_k=2, steps=256, tokens_per_step=32, seed=3)
EVEN = Recipe(kind="uniform", layers=2, experts=80, top_k=2, steps=256, tokens_per_step=64, seed=3)


def _ground(recipe: Recipe, folder: Path) -> Ground:
    synthesise(recipe, folder / "routing.parquet")
    return ground_of([folder / "routing.parquet"], None, Heard())


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return _ground(MIXTURE, tmp_path_factory.mktemp("mixture"))


@pytest.fixture(scope="module")
def session(ground: Ground) -> Session:
    return ground.on(CLUSTER, MIXED)


def test_auto_searches_and_is_the_same_again(ground: Ground, session: Session) -> None:
    first, again = (place(ground, session, "auto", Heard()) for _ in range(2))
    assert first.policy == "window_search" and np.array_equal(first.expert_of_slot, again.expert_of_slot)
    assert first.slots == 20


def test_auto_falls_back_to_greedy_where_windows_differ_by_chance(tmp_path: Path) -> None:
    cluster = uniform(8, 8, 11)
    even = _ground(EVEN, tmp_path)
    session = even.on(cluster, MIXED)
    assert place(even, session, "auto", Heard()).policy == "eplb"
    with pytest.raises(UsageError, match="no window_search: batch noise only"):
        place(even, session, "window_search", Heard())


def test_what_an_engine_begins_with_has_every_expert_once(ground: Ground, session: Session) -> None:
    topology = without_replicas(CLUSTER, 16)
    plan = place(ground, ground.on(topology, MIXED), "contiguous", Heard())
    assert topology.slots == plan.slots == 16 and plan.redundant_slots == 0
    assert place(ground, session, "contiguous", Heard()).slots == 16


def test_a_plan_file_has_to_fit(ground: Ground, session: Session, tmp_path: Path) -> None:
    plan, path = place(ground, session, "eplb", Heard()), tmp_path / "plan.json"
    write_plan(path, placed_document(plan, (0, 1)))
    assert np.array_equal(place(ground, session, str(path), Heard()).expert_of_slot, plan.expert_of_slot)
    wider = ground.on(uniform(8, 8, 3), MIXED)
    with pytest.raises(PlanError, match=r"on 4 ranks, the scenario has 2 × 16 on 8"):
        place(ground, wider, str(path), Heard())


def test_unknown_policies_are_refused_with_the_known_ones(ground: Ground, session: Session) -> None:
    with pytest.raises(UsageError, match=r"no policy 'magic' .*window_search"):
        place(ground, session, "magic", Heard())


def test_a_plan_of_the_recorded_layers_is_repeated_as_they_are(tmp_path: Path) -> None:
    synthesise(MIXTURE, tmp_path / "two.parquet")
    trace = open_trace([tmp_path / "two.parquet"])
    assert isinstance(trace, TokenTrace)
    shape = replace(ground_of([tmp_path / "two.parquet"], None, Heard()).shape, layers=tuple(range(5)))
    five = ground_of([repeated(trace, shape, tmp_path / "five.parquet")], shape, Heard())
    session, heard = five.on(CLUSTER, MIXED), Heard()
    other = ground_of([tmp_path / "two.parquet"], None, Heard())
    plan, path = place(other, other.on(CLUSTER, MIXED), "eplb", Heard()), tmp_path / "plan.json"
    write_plan(path, placed_document(plan, (0, 1)))
    found = place(five, session, str(path), heard)
    assert found.expert_of_slot.tolist() == plan.expert_of_slot[[0, 1, 0, 1, 0]].tolist()
    assert any("its 2 layers serve the 5 of the model in turn" in note for note in heard.notes)
    write_plan(path, placed_document(replace(plan, expert_of_slot=plan.expert_of_slot[:1]), (0,)))
    with pytest.raises(PlanError, match="the plan is for 1 layers"):
        place(five, session, str(path), Heard())
