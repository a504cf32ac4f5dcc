"""The gate is monotone, honest about thin evidence, and gives the same verdict on a saved report."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.judge import judge
from tests.gate_reports import good_report

CRITERIA = load_criteria()
IMBALANCES = st.floats(1.0, 50.0)
WORSE = {
    "plan__rank_imbalance__p99": IMBALANCES,
    "plan__rank_imbalance__mean": IMBALANCES,
    "plan__layer_us__p99": st.floats(0.0, 1e6),
    "plan__cross_node_bytes_per_token": st.floats(0.0, 1e9),
    "memory__kv_cache_loss_frac": st.floats(-1.0, 1.0),
    "migration__seconds": st.floats(0.0, 1e6),
}
EVIDENCE = ("split__held_out_steps", "split__held_out_windows", "split__fit_windows")


@st.composite
def changes(draw: st.DrawFn) -> dict[str, Any]:
    """Random values for every number that the gate reads."""
    values: dict[str, Any] = {path: draw(numbers) for path, numbers in WORSE.items()}
    values |= {path: draw(st.integers(0, 200)) for path in EVIDENCE}
    values |= {f"baseline__{name}": draw(IMBALANCES) for name in ("rank_imbalance__p99", "layer_us__p99")}
    return values | {"fit__rank_imbalance__mean": draw(IMBALANCES)}


@given(changes(), st.sampled_from(sorted(WORSE)), st.floats(0.0, 100.0))
@settings(max_examples=200, deadline=None)
def test_a_worse_number_never_turns_a_criterion_to_ok(values: dict[str, Any], path: str, by: float) -> None:
    before = judge(good_report(**values), CRITERIA)
    after = judge(good_report(**{**values, path: values[path] + by}), CRITERIA)
    for old, new in zip(before.findings, after.findings, strict=True):
        assert old.ok or not new.ok


@given(changes())
@settings(max_examples=200, deadline=None)
def test_status_follows_from_the_findings(values: dict[str, Any]) -> None:
    verdict = judge(good_report(**values), CRITERIA)
    evidence = {"held_out_steps_min", "held_out_windows_min", "fit_windows_min"}
    failed = {finding.criterion for finding in verdict.failed}
    expected = "insufficient_evidence" if failed & evidence else "rejected" if failed else "accepted"
    assert verdict.status == expected


@given(changes())
@settings(max_examples=100, deadline=None)
def test_a_saved_report_gets_the_same_verdict(values: dict[str, Any]) -> None:
    report = good_report(**values)
    verdict = judge(report, CRITERIA)
    assert judge(json.loads(json.dumps(report)), CRITERIA) == verdict
    assert json.loads(json.dumps(verdict.to_dict(), allow_nan=False)) == verdict.to_dict()
