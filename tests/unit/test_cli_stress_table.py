"""The block under stress: a line per scenario, of its worst case."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from easybalance_sim.cli.stress_table import of_stress
from easybalance_sim.gate.criteria import SCENARIOS, load_criteria
from easybalance_sim.gate.judge import judge
from tests.gate_reports import good_report, stressed_report


def block(report: dict[str, Any]) -> list[str]:
    judged = {**report, "verdict": judge(report, load_criteria()).to_dict()}
    (text,) = of_stress(judged)
    return text.splitlines()


@pytest.fixture
def report() -> dict[str, Any]:
    found = copy.deepcopy(stressed_report())
    for scenario in found["stress"].values():
        for case in scenario["cases"]:
            case["plan"]["mend_bytes"] = 12_300_000
    return found


def test_none_without_stress() -> None:
    assert of_stress(good_report()) == []


def test_a_line_per_scenario(report: dict[str, Any]) -> None:
    head, *lines = block(report)
    assert head.split()[:2] == ["under", "stress"]
    assert [line.split()[:2] for line in lines] == [["ok", name] for name in SCENARIOS]
    assert "1.200 → 1.200" in lines[0] and "100 → 100  -10.0 %" in lines[0]
    assert lines[3].split()[-5:] == ["8", "→", "4", "12.3", "MB"]


def test_what_fails_and_what_is_not_judged_is_marked(report: dict[str, Any]) -> None:
    report["stress"]["burst"]["cases"][0]["over_baseline"]["step_p99"] = 1.2
    report["stress"]["mix-change"] = {"not_judged": "requests cannot be told apart", "cases": [], "left_out": []}
    lines = block(report)
    assert lines[1].split()[:3] == ["–", "mix-change", "–"]
    assert lines[2].split()[:2] == ["NO", "burst"]
    assert lines[-1] == "mix-change: requests cannot be told apart"


def test_what_no_mix_is_made_of_is_named(report: dict[str, Any]) -> None:
    report["stress"]["mix-change"]["left_out"] = ["c", "manual"]
    assert block(report)[-1].startswith("no mix is made of: c, manual")


def test_large_sizes_are_in_gigabytes(report: dict[str, Any]) -> None:
    report["stress"]["node-loss"]["cases"][0]["plan"]["mend_bytes"] = 158_186_300_000
    assert block(report)[4].endswith("158.2 GB")
