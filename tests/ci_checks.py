"""Checks of every outcome, with texts that XML, workflow commands and Markdown have to escape."""

from __future__ import annotations

from easybalance_sim.gate.checks import ERROR, FAILED, PASSED, SKIPPED, WARNED, Check

EVERY_OUTCOME = (
    Check(suite="lint SGLang 0.5.23", name="no-errors", outcome=PASSED, file="map.json"),
    Check(
        suite="lint SGLang 0.5.23", name="extra-layers", outcome=WARNED, message="row 9: no such layer", file="a,b.json"
    ),
    Check(suite="gate", name="kv_cache_loss_max", outcome=SKIPPED, message="not judged: unknown", limit="0.1"),
    Check(
        suite="gate", name="stress.burst", outcome=FAILED, kind="rejected", message="worst: <a|b> & 50 %\nP99 \x07",
        limit="1.02", observed="1.5", file="report.json",
    ),
    Check(suite="run", name="run", outcome=ERROR, kind="CriteriaError", message="report split: is missing"),
)  # fmt: skip
