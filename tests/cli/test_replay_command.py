"""`ebsim replay` as a user runs it: an existing plan on other traffic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.json_reports import require_documented
from tests.skewed_traces import SLOTS, skewed_counts, skewed_trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trace.parquet, later.parquet, plan.json fitted on the workload `left` of trace.parquet, and its report."""
    folder = tmp_path_factory.mktemp("replay")
    skewed_trace(folder / "trace.parquet")
    skewed_trace(folder / "later.parquet", seed=5)
    flags = ("--ranks", "4", "--slots-per-rank", "5", "--workload", "left", "--policy", "eplb", "--split", "request")
    done = ebsim_here("plan", "trace.parquet", *flags, "--format", "json", "--force", "-o", "plan.json", cwd=folder)
    (folder / "report.json").write_text(done.stdout)
    return folder


def test_json_is_documented_and_gate_agrees(folder: Path, tmp_path: Path) -> None:
    flags = ("--plan", "plan.json", "--workload", "left", "--format", "json")
    done = ebsim("replay", "later.parquet", *flags, cwd=folder)
    report = json.loads(done.stdout)
    require_documented(report)
    assert (done.returncode, done.stderr, report["verdict"]["status"]) == (0, "", "accepted")
    assert (report["split"]["by"], report["split"]["held_out_tokens"]) == ("all", 320 * SLOTS // 2)
    (tmp_path / "report.json").write_text(done.stdout)
    judged = ebsim_here("gate", tmp_path / "report.json", "--format", "json")
    assert (judged.returncode, json.loads(judged.stdout)) == (0, report["verdict"])


def test_on_its_own_trace_the_fitted_tokens_are_left_out(folder: Path) -> None:
    made = json.loads((folder / "report.json").read_text())
    flags = ("--plan", "plan.json", "--workload", "left", "--format", "json")
    done = ebsim_here("replay", "trace.parquet", *flags, cwd=folder)
    report = json.loads(done.stdout)
    tokens = report["split"]["held_out_tokens"]
    assert tokens == 320 * SLOTS // 2 - made["split"]["fit_tokens"] == made["split"]["held_out_tokens"]
    assert report["plan"]["rank_imbalance"] == made["plan"]["rank_imbalance"]
    assert done.stderr == "note: the plan was fitted on this trace: only what it was not made from is replayed\n"


def test_another_workload_is_refused_with_exit_1_and_the_criterion(folder: Path) -> None:
    plan = (folder / "plan.json").read_bytes()
    done = ebsim_here("replay", "trace.parquet", "--plan", "plan.json", "--workload", "right", cwd=folder)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "REJECTED (fit_gap_max): eplb, plan.json"
    assert f"judged on {320 * SLOTS // 2:,} tokens, " in done.stdout
    assert (folder / "plan.json").read_bytes() == plan


def test_too_little_traffic_exits_3(folder: Path, tmp_path: Path) -> None:
    short = skewed_trace(tmp_path / "short.parquet", steps=24)
    done = ebsim_here("replay", short, "--plan", folder / "plan.json")
    assert done.returncode == 3
    assert done.stdout.startswith("INSUFFICIENT_EVIDENCE (held_out_steps_min, ")


def test_an_edited_plan_is_refused(folder: Path, tmp_path: Path) -> None:
    edited = tmp_path / "plan.json"
    edited.write_text((folder / "plan.json").read_text().replace('"policy":"eplb"', '"policy":"best"'))
    done = ebsim_here("replay", folder / "later.parquet", "--plan", edited)
    assert done.returncode == 2
    assert f"{edited}: the content does not match its fingerprint" in one_line(done)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--plan", "absent.json"), "absent.json: cannot read"),
        ((), "Missing option '--plan'"),
        (("--plan", "{plan}", "--baseline", "eplb"), "--baseline: 'eplb' is neither a plan file nor"),
        (("--plan", "{plan}", "--dispatch", "nope"), "--dispatch: 'nope' is not known"),
        (("--plan", "{plan}", "--workload", "nope"), "the trace has no workload 'nope'"),
        (("--plan", "{plan}", "--profile", "nope"), "nope: unknown hardware profile"),
        (("--plan", "{plan}", "--phase", "prefill"), "no token is left to judge on"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(folder: Path, flags: tuple[str, ...], says: str) -> None:
    given = [flag.replace("{plan}", str(folder / "plan.json")) for flag in flags]
    done = ebsim_here("replay", folder / "later.parquet", *given)
    assert done.returncode == 2
    assert says in one_line(done)


def test_counts_replay_with_expected_values(folder: Path, tmp_path: Path) -> None:
    counts = skewed_counts(tmp_path / "counts.parquet", windows=80)
    done = ebsim_here("replay", counts, "--plan", folder / "plan.json")
    assert "80 windows as recorded" in done.stdout
    assert "note: count trace: rank loads are expected values" in done.stderr
