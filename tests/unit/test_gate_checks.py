"""Findings as checks."""

from __future__ import annotations

from easybalance_sim.gate.checks import FAILED, PASSED, SKIPPED, WARNED, of_lint, of_verdict
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.plan.lint import ERROR, WARNING, Finding
from tests.gate_reports import good_report


def test_a_verdict_gives_a_check_per_criterion() -> None:
    verdict = judge(good_report(split__held_out_steps=5, memory__kv_cache_loss_frac=None), load_criteria())
    checks = {check.name: check for check in of_verdict(verdict, "report.json")}
    assert list(checks) == [finding.criterion for finding in verdict.findings]
    failed = checks["held_out_steps_min"]
    assert (failed.outcome, failed.kind) == (FAILED, "insufficient_evidence")
    assert (failed.limit, failed.observed, failed.file) == ("64", "5", "report.json")
    assert checks["kv_cache_loss_max"].outcome == SKIPPED
    assert checks["p99_imbalance_drop_min"].outcome == PASSED


def test_lint_findings_are_gathered_by_rule() -> None:
    twice = [Finding(level=ERROR, message="expert -1", rule="negative", layer=layer, slot=4) for layer in (1, 2)]
    mild = [Finding(level=WARNING, message="who knows", rule=rule) for rule in ("unchecked", "")]
    checks = of_lint([*twice, *mild], "SGLang", "map.json")
    assert [(check.name, check.outcome) for check in checks] == [
        ("negative", FAILED), ("unchecked", SKIPPED), ("house-rules", WARNED),
    ]  # fmt: skip
    assert checks[0].message == "layer 1, slot 4: expert -1 (1 more)"
    first = of_lint(mild, "SGLang", "map.json")[0]
    assert (first.name, first.outcome) == ("no-errors", PASSED)
