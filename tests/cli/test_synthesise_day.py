"""`ebsim trace synthesise day` as a user runs it: commands work on the file, refusals are one line, memory is flat."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.long_traces import measured

WIDE = ("--layers", 12, "--experts", 256, "--top-k", 8, "--tenants", 2, "--topics", 2)
GROWTH_MB = 30
"""2,880 windows more are 71 MB more of counts."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("days")
    done = ebsim("trace", "synthesise", "day", "-o", "day.parquet", "--layers", "2", "--hours", "6", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "wrote day.parquet: day, 360 windows of 60 s, 2 layers × 64 experts, top-6\n" in done.stdout
    assert "wrote day.truth.json: " in done.stdout
    return folder


def test_it_is_checked_and_described(folder: Path) -> None:
    truth = json.loads((folder / "day.truth.json").read_text())
    found = json.loads(ebsim_here("trace", "summary", "day.parquet", "--format", "json", cwd=folder).stdout)
    assert (found["trace"]["kind"], found["windows"]["count"]) == ("counts", 360)
    assert found["trace"]["tokens"] == sum(entry["tokens"] for entry in truth["schedule"])
    assert set(found["workloads"]) <= {topic["tenant"] for topic in truth["topics"]}
    assert found["all_layers"]["over_dispersion"] > 5
    assert ebsim_here("trace", "check", "day.parquet", cwd=folder).returncode == 0


def test_it_is_planned(folder: Path) -> None:
    done = ebsim_here("plan", "day.parquet", "--ranks", "8", "--policy", "eplb", "--format", "json", cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert (report["split"]["fit_windows"], report["split"]["held_out_windows"]) == (180, 180)
    assert report["plan"]["rank_imbalance"]["mean"] < report["baseline"]["rank_imbalance"]["mean"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--hours", "0.1"), "--window-seconds: 6 windows in 0.1 hours"),
        (("--tenants", "4", "--topics", "3"), "--tenants: 4 tenants with 3 topics"),
        (("--within", "0"), "--within: is 0"),
    ],
)
def test_a_day_that_cannot_be_is_one_line(tmp_path: Path, flags: tuple[str, ...], says: str) -> None:
    done = ebsim_here("trace", "synthesise", "day", "-o", tmp_path / "x.parquet", *flags)
    assert done.returncode == 2 and says in one_line(done)
    assert list(tmp_path.iterdir()) == []


def test_memory_does_not_grow_with_the_hours(tmp_path: Path) -> None:
    command = ("trace", "synthesise", "day", "-o", "day.parquet", *WIDE)
    short, long = (measured(*command, "--hours", hours, cwd=tmp_path) for hours in (6, 54))
    assert (short.code, long.code) == (0, 0)
    assert long.peak_mb - short.peak_mb < GROWTH_MB, f"{short.peak_mb} MB, then {long.peak_mb} MB"
