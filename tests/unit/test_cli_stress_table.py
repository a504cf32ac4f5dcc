"""The block under stress: a line per scenario, of its worst case."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from easybalance_sim.cli.stress_table import of_stress
from easybalance_sim.gate.criteria import SCENARIOS, load_criteria
from easybalance_sim.gate.judge import judge
from tests.gate_reports import good_report, one_case, stressed_report


def block(report: dict[str, Any]) -> list[str]:
    judged = {**report, "verdict": judge(report, load_criteria()).to_dict()}
    (text,) = of_stress(judged)
    # What hangs under a line belongs to it.
    return re.sub(r"\n +", " ", text).splitlines()


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
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", name] for name in SCENARIOS]
    assert "1.200 → 1.200" in lines[0] and "100 → 100  -10.0 %" in lines[0]
    assert lines[-1] == ("experts without a copy when any is lost (worst case): 8 → 4, 12.3 MB to fetch again")


def test_experts_are_counted_in_the_case_that_the_gate_names(report: dict[str, Any]) -> None:
    slow, emptied = one_case("rank 0", step_p99=1.01), one_case("rank 7")
    emptied["plan"] |= {"experts_lost": 5, "experts_lost_frac": 0.15}
    for case in (slow, emptied):
        case["plan"]["mend_bytes"] = 10**6 * case["plan"]["experts_lost"]
    report["stress"]["node-loss"]["cases"] = [slow, emptied]
    lines = block(report)
    assert lines[4].endswith("worst case: rank 0")
    assert lines[-1].startswith("experts without a copy when rank 7 is lost (worst case): 8 → 5, 5.0 MB to fetch again")
    finding = next(one for one in judge(report, load_criteria()).findings if one.criterion == "stress.lost-experts")
    assert finding.note == "experts without a copy 8 → 5, worst: rank 7"


def test_no_line_on_lost_experts_where_no_rank_can_be_lost(report: dict[str, Any]) -> None:
    report["stress"]["node-loss"] = {"not_judged": "a single rank has nobody to take its work", "cases": []}
    assert "without a copy" not in "\n".join(block(report))


def test_what_fails_and_what_is_not_judged_is_marked(report: dict[str, Any]) -> None:
    report["stress"]["burst"]["cases"][0]["over_baseline"]["step_p99"] = 1.2
    report["stress"]["mix-change"] = {"not_judged": "requests cannot be told apart", "cases": [], "left_out": []}
    lines = block(report)
    assert lines[1].split()[:3] == ["–", "mix-change", "–"]
    assert lines[2].split()[:2] == ["NO", "burst"]
    assert lines[-2] == "mix-change: requests cannot be told apart"


def test_what_no_mix_is_made_of_is_named(report: dict[str, Any]) -> None:
    report["stress"]["mix-change"]["left_out"] = ["c", "manual"]
    assert block(report)[-1].startswith("no mix is made of: c, manual")


def test_large_sizes_are_in_gigabytes(report: dict[str, Any]) -> None:
    report["stress"]["node-loss"]["cases"][0]["plan"]["mend_bytes"] = 158_186_300_000
    assert ", 158.2 GB to fetch" in block(report)[-1]
