from __future__ import annotations

import pytest

from easybalance_sim.gate.verdict import Finding, Verdict

GOOD = Finding(criterion="fit_gap_max", limit=0.15, observed=0.1, ok=True)
BAD = Finding(criterion="kv_cache_loss_max", limit=0.1, observed=0.4, ok=False, note="too much")


@pytest.mark.parametrize(("status", "code"), [("accepted", 0), ("rejected", 1), ("insufficient_evidence", 3)])
def test_exit_codes(status: str, code: int) -> None:
    assert Verdict(status=status, findings=()).exit_code == code


def test_failed_findings() -> None:
    assert Verdict(status="rejected", findings=(GOOD, BAD)).failed == (BAD,)


def test_report_section() -> None:
    assert Verdict(status="rejected", findings=(BAD,)).to_dict() == {
        "status": "rejected",
        "findings": [
            {"criterion": "kv_cache_loss_max", "limit": 0.1, "observed": 0.4, "ok": False, "note": "too much"}
        ],
    }
