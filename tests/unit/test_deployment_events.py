"""What a scenario says will happen."""

from __future__ import annotations

from easybalance_sim.deployment.events import events
from easybalance_sim.deployment.scenario import load_scenario
from tests.ebsim_process import ROOT


def told(name: str) -> list[tuple[float, str]]:
    return [(one["at_s"], one["name"]) for one in events(load_scenario(ROOT / "scenarios" / name))]


def test_a_burst_begins_and_ends() -> None:
    assert told("burst.toml") == [(30.0, "javascript burst"), (45.0, "burst over")]


def test_nothing_happens_on_an_ordinary_day() -> None:
    assert told("steady-chat.toml") == []


def test_tenants_come_and_plans_are_made_anew() -> None:
    assert "comes" in " ".join(name for _, name in told("code-tenant-arrives.toml"))
    plans = [at for at, name in told("dynamic-redundancy.toml") if name == "plan made anew"]
    assert len(plans) > 1 and plans == sorted(plans)
    assert plans[1] - plans[0] == plans[0]
