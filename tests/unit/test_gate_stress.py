"""The findings on a `stress` section, and what without one stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from easybalance_sim.errors import CriteriaError
from easybalance_sim.gate.criteria import SCENARIOS, Criteria, load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.gate.verdict import Finding
from tests.gate_reports import good_report, one_case, stressed_report


def findings(report: dict[str, Any], criteria: Criteria | None = None) -> dict[str, Finding]:
    verdict = judge(report, criteria or load_criteria())
    return {finding.criterion: finding for finding in verdict.findings if finding.criterion.startswith("stress")}


def test_a_finding_for_every_scenario_by_name() -> None:
    found = findings(stressed_report())
    assert list(found) == [*(f"stress.{name}" for name in SCENARIOS), "stress.imbalance", "stress.lost-experts"]
    assert all(finding.ok for finding in found.values())
    assert judge(stressed_report(), load_criteria()).status == "accepted"
    assert findings(good_report()) == {}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_one_missed_scenario_rejects_and_names_its_worst_case(scenario: str) -> None:
    report = stressed_report()
    report["stress"][scenario]["cases"] = [
        one_case("mild"),
        one_case("bad", step_p99=1.06),
        one_case("worse", step_p99=1.2),
    ]
    verdict = judge(report, load_criteria())
    (failed,) = verdict.failed
    assert verdict.status == "rejected"
    assert (failed.criterion, failed.observed) == (f"stress.{scenario}", 1.2) and "worst: worse" in failed.note


def test_limits_by_scenario() -> None:
    slow = [one_case(step_p99=1.04)]
    found = findings(stressed_report(uniform=slow, burst=slow))
    assert (found["stress.uniform"].limit, found["stress.uniform"].ok) == (1.15, True)
    assert (found["stress.burst"].limit, found["stress.burst"].ok) == (1.02, False)


@pytest.mark.parametrize(("noise", "ok"), [(0.0, False), (0.009, False), (0.011, True)])
def test_what_chance_explains_does_not_count(noise: float, ok: bool) -> None:
    assert findings(stressed_report(burst=[one_case(step_p99=1.04, step_p99_noise=noise)]))["stress.burst"].ok is ok


def test_the_worst_case_is_the_surest() -> None:
    cases = [one_case("noisy", step_p99=1.3, step_p99_noise=0.2), one_case("sure", step_p99=1.1)]
    assert findings(stressed_report(burst=cases))["stress.burst"].observed == 1.1


def test_imbalance_is_judged_under_other_mixes_and_bursts_alone() -> None:
    uneven = [one_case("rare", imbalance_p99=1.2)]
    for scenario in ("mix_change", "burst"):
        finding = findings(stressed_report(**{scenario: uneven}))["stress.imbalance"]
        assert not finding.ok and f"worst: {scenario.replace('_', '-')} rare" in finding.note
    for scenario in ("uniform", "node_loss", "heterogeneous"):
        assert findings(stressed_report(**{scenario: uneven}))["stress.imbalance"].ok


def test_assumed_widths_leave_imbalance_and_lost_experts() -> None:
    report = stressed_report(burst=[one_case(step_p99=9.0)], mix_change=[one_case(imbalance_p99=1.2)])
    report["model"]["assumed"] = True
    found = findings(report)
    assert found["stress.burst"].ok and found["stress.burst"].note.startswith("not judged: the model's widths")
    assert not found["stress.imbalance"].ok and found["stress.lost-experts"].observed == 0.125


def test_what_could_not_be_made_is_not_judged() -> None:
    report = stressed_report()
    for name in SCENARIOS:
        report["stress"][name] = {"what": "", "not_judged": "nothing is held out", "cases": []}
    found = findings(report)
    assert all(finding.ok and finding.observed is None for finding in found.values())
    assert {finding.note for finding in found.values()} == {"not judged: nothing is held out"}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda report: report["stress"].pop("burst"), r"report stress\.burst: is missing"),
        (lambda report: report["stress"]["burst"].pop("cases"), r"report stress\.burst\.cases: is missing"),
        (lambda report: report["stress"]["burst"].update(cases=3), r"stress\.burst\.cases: is 3, expected a list"),
        (lambda report: report["stress"]["burst"].update(cases=[]), "report stress.burst: has no case and no reason"),
        (
            lambda report: report["stress"]["uniform"]["cases"][0]["over_baseline"].update(step_p99=None),
            r"report stress\.uniform\.cases\[0\]\.over_baseline\.step_p99: is None, expected a finite number",
        ),
    ],
)  # fmt: skip
def test_a_damaged_section_is_named(spoil: Any, message: str) -> None:
    report = stressed_report()
    spoil(report)
    with pytest.raises(CriteriaError, match=message):
        judge(report, load_criteria())


def test_criteria_by_scenario_join_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    path.write_text("[stress_p99_over_baseline_max_of]\nnode-loss = 1.5\n", encoding="utf-8")
    assert load_criteria(path).stress_p99_over_baseline_max_of == {"uniform": 1.15, "node-loss": 1.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flood = 1.1", "stress_p99_over_baseline_max_of has no scenario 'flood' — they are mix-change, "),
        ("burst = nan", r"stress_p99_over_baseline_max_of\.burst is nan"),
        ('burst = "1"', r"Expected `float`, got `str`"),
    ],
)
def test_bad_criteria_by_scenario_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(f"[stress_p99_over_baseline_max_of]\n{text}\n", encoding="utf-8")
    with pytest.raises(CriteriaError, match=message):
        load_criteria(path)
