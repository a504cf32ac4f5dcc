"""Finding policies by name, checking problems, refusing plans that do not fit."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import EbsimError, PlanError, UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem

BUILT_IN = ("contiguous", "eplb", "eplb_hierarchical", "eplb_no_redundancy", "keep", "round_robin")


def problem(forecast: object = None, groups: int = 1) -> Problem:
    loads = np.arange(1.0, 17.0).reshape(2, 8) if forecast is None else np.asarray(forecast)
    return Problem(forecast=loads, windows=np.zeros((0, *loads.shape)), topology=uniform(4, 2, 3), groups=groups)


def third_party(problem: Problem) -> Plan:
    return policies.make("contiguous", problem)


def wrong_layers(problem: Problem) -> Plan:
    return Plan(expert_of_slot=[np.arange(8)], slots_per_rank=[2, 2, 2, 2], experts=8, policy="")  # type: ignore[arg-type]


def too_many_slots(problem: Problem) -> Plan:
    return Plan(expert_of_slot=[np.arange(8)] * 2, slots_per_rank=[4, 2, 1, 1], experts=8, policy="")  # type: ignore[arg-type]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = {"theirs": "third_party", "short": "wrong_layers", "greedy": "too_many_slots", "broken": "not_there"}
    found = EntryPoints(EntryPoint(n, f"{__name__}:{t}", policies.ENTRY_POINTS) for n, t in targets.items())
    shadow = EntryPoint("eplb", f"{__name__}:wrong_layers", policies.ENTRY_POINTS)
    monkeypatch.setattr(policies, "entry_points", lambda group: EntryPoints([*found, shadow]).select(group=group))


def test_every_module_is_a_policy() -> None:
    assert set(BUILT_IN) <= set(policies.names())
    assert not [name for name in policies.names() if name.startswith("_")]


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(UsageError, match=r"no policy 'epbl'.*contiguous, eplb, eplb_hierarchical"):
        policies.make("epbl", problem())


def test_plan_carries_the_name_it_was_asked_by(installed: None) -> None:
    assert "theirs" in policies.names()
    assert policies.make("theirs", problem()).policy == "theirs"


def test_built_in_comes_before_an_entry_point_of_its_name(installed: None) -> None:
    assert policies.make("eplb", problem()).layers == 2


@pytest.mark.parametrize(("name", "message"), [("short", r"policy short: .*\(1, 8, 4\)"), ("greedy", "more slots")])
def test_plan_that_does_not_fit_is_refused(installed: None, name: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        policies.make(name, problem())


def test_entry_point_that_does_not_load_is_named(installed: None) -> None:
    with pytest.raises(UsageError, match=r"policy broken: cannot load .*not_there"):
        policies.make("broken", problem())


@pytest.mark.parametrize(
    ("forecast", "groups", "message"),
    [
        ([[1.0] * 7 + [-1.0]], 1, "negative"),
        ([[1.0] * 7 + [np.nan]], 1, "not a number"),
        ([[1.0] * 7 + [np.inf]], 1, "not a number"),
        ([1.0] * 8, 1, "any×any"),
        ([[1.0] * 8], 3, "8 experts do not form 3 equal groups"),
        ([[1.0] * 8], 0, "0 equal groups"),
        ([[1.0] * 13], 1, "12 slots cannot hold 13 experts"),
        ([[1.0] * 2], 1, "hold an expert twice"),
    ],
)
def test_bad_problem_is_refused(forecast: object, groups: int, message: str) -> None:
    with pytest.raises(EbsimError, match=message):
        problem(forecast, groups)


def test_windows_of_another_model_are_refused() -> None:
    with pytest.raises(EbsimError, match="windows"):
        Problem(forecast=np.ones((2, 8)), windows=np.zeros((3, 2, 7), int), topology=uniform(4, 2, 3))
