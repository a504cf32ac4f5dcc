"""`--stress` as a user runs it: a block in the table, findings by name, and an exit code that says no."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.cli.report_table import of_plan
from easybalance_sim.gate.criteria import SCENARIOS
from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.ebsim_process import SAMPLE, ebsim_here
from tests.json_reports import require_documented
from tests.plan_documents import placed_document
from tests.stress_cases import BALANCED, LAYERS, OVERFITTED, kinds_trace

QUICK = ("--ranks", "8", "--slots-per-rank", "10", "--split", "request", "--policy", "eplb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trace.parquet, and plans from elsewhere: one for its usual workload alone, one for all."""
    folder = tmp_path_factory.mktemp("stress")
    kinds_trace(folder / "trace.parquet", 160)
    write_plan(folder / "overfitted.json", placed_document(OVERFITTED, LAYERS))
    write_plan(folder / "balanced.json", placed_document(BALANCED, LAYERS))
    return folder


def test_the_sample_trace(tmp_path: Path) -> None:
    flags = (*QUICK, "--stress", "-o", tmp_path / "plan.json")
    done = ebsim_here("plan", SAMPLE, *flags, "--format", "json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    lines = of_plan(report).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    for name in SCENARIOS:
        assert sum(line.startswith(f"ok  {name} ") for line in lines) == 1
    for name in (*SCENARIOS, "imbalance", "lost-experts"):
        assert sum(line.startswith(f"ok  stress.{name} ") for line in lines) == 1
    require_documented(report)
    assert report["stress"] == read_plan(tmp_path / "plan.json").evidence["stress"]
    assert "stress" in report["timing_s"]


@pytest.mark.parametrize(("name", "code"), [("balanced", 0), ("overfitted", 1)])
def test_an_overfitted_plan_is_refused_under_stress_alone(folder: Path, name: str, code: int) -> None:
    flags = (folder / "trace.parquet", "--plan", folder / f"{name}.json")
    assert ebsim_here("replay", *flags).returncode == 0
    done = ebsim_here("replay", *flags, "--stress")
    assert done.returncode == code
    if code:
        assert done.stdout.startswith("REJECTED (stress.mix-change, stress.burst, ")
        assert "\nNO  mix-change " in done.stdout and "\n      worst case: rare\n" in done.stdout


def test_saved_reports_are_judged_by_other_limits(folder: Path, tmp_path: Path) -> None:
    flags = ("trace.parquet", "--plan", "overfitted.json", "--stress", "--format", "json")
    report = tmp_path / "report.json"
    report.write_text(ebsim_here("replay", *flags, cwd=folder).stdout, encoding="utf-8")
    lenient = tmp_path / "lenient.toml"
    lenient.write_text(
        "stress_p99_over_baseline_max = 2.0\nstress_p99_imbalance_over_baseline_max = 4.0\n", encoding="utf-8"
    )
    assert ebsim_here("gate", report).returncode == 1
    assert ebsim_here("gate", report, "--criteria", lenient).returncode == 0


def test_both_phases_have_their_block() -> None:
    done = ebsim_here("plan", SAMPLE, *QUICK, "--per-phase", "--stress")
    assert done.stdout.count("under stress") == 2
