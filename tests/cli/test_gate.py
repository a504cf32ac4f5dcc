"""`ebsim gate` as CI would run it: real processes, exit codes, one line on bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ebsim_process import Done, ebsim, ebsim_here
from tests.gate_reports import good_report


def _gate(*arguments: str | Path) -> Done:
    return ebsim("gate", *arguments)


def _report(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(good_report(**changes)), encoding="utf-8")
    return path


def test_accepted_exits_0(tmp_path: Path) -> None:
    done = _gate(_report(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ACCEPTED\n")
    assert "p99_imbalance_drop_min" in done.stdout


def test_rejected_exits_1_and_names_the_criterion(tmp_path: Path) -> None:
    done = _gate(_report(tmp_path, plan__layer_us__p99=400.0), "--format", "json")
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["status"]) == (1, "rejected")
    assert [f["criterion"] for f in verdict["findings"] if not f["ok"]] == ["p99_layer_time_growth_max"]


def test_insufficient_evidence_exits_3(tmp_path: Path) -> None:
    done = _gate(_report(tmp_path, split__held_out_steps=5))
    assert done.returncode == 3
    assert done.stdout.startswith("INSUFFICIENT_EVIDENCE (held_out_steps_min)\n")


def test_criteria_file_changes_the_verdict(tmp_path: Path) -> None:
    criteria = tmp_path / "gate.toml"
    criteria.write_text("p99_imbalance_drop_min = 0.9\n", encoding="utf-8")
    assert ebsim_here("gate", _report(tmp_path), "--criteria", criteria).returncode == 1
    criteria.write_text("p99_imbalance_drop_min = 0.6\n", encoding="utf-8")
    assert ebsim_here("gate", _report(tmp_path), "--criteria", criteria).returncode == 0


@pytest.mark.parametrize(
    ("report", "criteria", "message"),
    [
        ("{", "", "not JSON"),
        ("[]", "", "the file holds no JSON object"),
        ("{}", "", "report split: is missing"),
        (None, "", "cannot read"),
        ("{}", "p99 = 1", "unknown field `p99`"),
    ],
)
def test_bad_input_exits_2_with_one_line(report: str | None, criteria: str, message: str, tmp_path: Path) -> None:
    path, limits = tmp_path / "report.json", tmp_path / "gate.toml"
    limits.write_text(criteria, encoding="utf-8")
    if report is not None:
        path.write_text(report, encoding="utf-8")
    done = ebsim_here("gate", path, "--criteria", limits)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_has_an_example() -> None:
    done = ebsim_here("gate", "--help")
    assert done.returncode == 0
    assert "ebsim gate report.json" in " ".join(done.stdout.split())
