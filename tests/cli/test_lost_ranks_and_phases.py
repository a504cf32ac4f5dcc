"""`ebsim plan --lost-ranks` and `--per-phase` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from easybalance_sim.plan.planfile import read_plan
from tests.ebsim_process import SAMPLE, ebsim, ebsim_here, one_line
from tests.json_reports import require_documented
from tests.phase_traces import phase_trace
from tests.skewed_traces import skewed_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("lost") / "skewed.parquet")


@pytest.fixture(scope="module")
def before(trace: Path) -> Path:
    """A plan in force on 4 ranks × 6 slots."""
    path = trace.with_name("before.json")
    ebsim_here("plan", trace, "--ranks", "4", "--slots-per-rank", "6", "--policy", "eplb", "--force", "-o", path)
    return path


def test_a_plan_for_the_survivors(trace: Path, before: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    done = ebsim("plan", trace, "--current", before, "--lost-ranks", "2", "--force", "--format", "json", "-o", new)
    report = json.loads(done.stdout)
    require_documented(report)
    assert (report["cluster"]["ranks"], report["baseline"]["policy"]) == (3, "repair")
    assert "note: 3 of 4 ranks are left; " in done.stderr
    assert read_plan(new).parent_ranks == (0, 1, 3)
    table = ebsim_here(
        "plan", trace, "--current", before, "--lost-ranks", "2", "--policy", "repair", "--force", "-o", new
    )
    assert "plan: repair\n" in table.stdout and "3 ranks × 6 slots" in table.stdout
    assert ebsim_here("replay", trace, "--plan", new).returncode in (0, 1)
    again = ebsim_here("plan", trace, "--current", new, "--policy", "keep", "--format", "json")
    assert json.loads(again.stdout)["migration"]["moves"] == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ("--lost-ranks", "1,2"),
            "--lost-ranks: the 2 ranks that are left have 12 slots, too few for 16 experts — give ",
        ),
        (("--lost-ranks", "9"), "--lost-ranks: there is no rank 9 — the plan has 0 to 3"),
        (("--lost-ranks", "0,1,2,3"), "--lost-ranks: no rank is left"),
        (("--lost-ranks", "three"), "--lost-ranks: 'three' is no list of ranks — write it as 3,7"),
        (("--lost-ranks", "2", "--ranks", "3"), "--lost-ranks: the cluster is what is left of the plan's"),
        (("--lost-ranks", "2", "--max-moves", "0"), "--max-moves: "),
        (("--per-phase", "--phase", "decode"), "--per-phase: plans for both phases — leave out --phase"),
    ],
)
def test_what_cannot_be_planned_is_one_line(trace: Path, before: Path, flags: tuple[str, ...], says: str) -> None:
    done = ebsim_here("plan", trace, "--current", before, *flags)
    assert done.returncode == 2
    assert says in done.stderr
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert done.stdout == "" and len(done.stderr.splitlines()) == len(notes) + 1


def test_lost_ranks_need_a_plan_in_force() -> None:
    done = ebsim_here("plan", SAMPLE, "--lost-ranks", "2")
    assert done.returncode == 2 and "give that plan with --current" in one_line(done)


def test_two_plans_from_one_trace(tmp_path: Path) -> None:
    trace, cluster = phase_trace(tmp_path / "two.parquet"), ("--ranks", "8", "--slots-per-rank", "5")
    command = ("plan", trace, *cluster, "--window-steps", "8", "--per-phase", "-o", tmp_path / "plan.json")
    done = ebsim_here(*command)
    assert done.returncode == 0, done.stderr
    for heading in ("=== prefill ===", "=== decode ===", "=== each plan on either traffic ==="):
        assert f"{heading}\n\n" in done.stdout
    assert done.stdout.count("ACCEPTED: ") == 2
    assert "P99 layer time with the other phase's plan: +" in done.stdout
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["plan.decode.json", "plan.prefill.json"]
    report = json.loads(ebsim_here(*command[:-2], "--format", "json", "--policy", "eplb").stdout)
    assert set(report) == {"phases", "cross", "notes"}
    for phase in ("prefill", "decode"):
        require_documented(report["phases"][phase])
        assert report["phases"][phase]["plan_file"] is None
    assert set(report["cross"]) == {"differing_experts", "placed_experts", "on"}
    kept = ebsim_here(*command[:-2], "--current", tmp_path / "plan.json", "--policy", "keep", "--format", "json")
    phases = json.loads(kept.stdout)["phases"]
    assert [phases[phase]["plan"]["slots"] for phase in ("prefill", "decode")] == [40, 32]
