"""`ebsim sweep` as a user runs it: streams, exit codes, files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.ebsim_process import PATIENCE_S, ebsim, ebsim_here, environment, hear_interrupts, one_line
from tests.one_text import unbroken
from tests.skewed_traces import skewed_trace
from tests.sweep_reports import require_documented_sweep


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("sweep") / "skewed.parquet")


def test_json_file_figure_and_stdout_agree(trace: Path, tmp_path: Path) -> None:
    flags = ("--ranks", "4", "--redundancy", "0,1", "--per-layer", "--split", "request", "--format", "json")
    done = ebsim("sweep", trace, *flags, "--figure", tmp_path / "s.svg", "-o", tmp_path / "s.json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    require_documented_sweep(report)
    assert json.loads((tmp_path / "s.json").read_text()) == report
    assert ElementTree.parse(tmp_path / "s.svg").getroot().tag.endswith("}svg")
    assert [f"note: {note}" for note in report["notes"]] == [
        line for line in done.stderr.splitlines() if line.startswith("note: ")
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json", "s.svg"]


def test_the_table_says_which_slots_and_what_they_cost(trace: Path) -> None:
    done = ebsim_here("sweep", trace, "--ranks", "2,4", "--slots-per-rank", "8,9", "--policy", "eplb", "--per-layer")
    assert done.returncode == 0
    assert "2 ranks on 1 node, windows of 16 steps; judged on " in done.stdout
    assert done.stdout.count("  per layer  ") == 6 and "no plan is written" in unbroken(done.stdout)
    assert "the curves at their knees" in done.stdout and "note:" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--ranks", "4,x"), "--ranks: '4,x' is not a list of whole numbers"),
        (("--redundancy", "1", "--slots-per-rank", "5"), "exclude each other"),
        (("--slots-per-rank", "1"), "--slots-per-rank: slots per rank can be 2 to 16, not 1"),
        (("--figure", "s.pdf"), "--figure: s.pdf is not an .svg file"),
        (("--figure", "absent/s.svg"), "there is no folder absent"),
        (("-o", "absent/s.json"), "there is no folder absent"),
        (("--window-steps", "0"), "--window-steps: 0 is not between"),
        (("--policy", "nope"), "--policy: 'nope' is not known"),
        (("--cluster", "absent.toml"), "absent.toml: cannot read"),
    ],
)
def test_bad_input_exits_2_with_one_line(trace: Path, flags: tuple[str, ...], says: str) -> None:
    done = ebsim_here("sweep", trace, *flags)
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1] and done.stdout == ""


def test_a_missing_trace_is_one_line(tmp_path: Path) -> None:
    done = ebsim_here("sweep", tmp_path / "absent.parquet", "--ranks", "4")
    assert done.returncode == 2 and "absent.parquet" in one_line(done)


def test_an_interrupt_leaves_old_files_as_they_were(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("old")
    command = [sys.executable, "-m", "easybalance_sim", "sweep", str(trace), "--ranks", "4", "--window-steps", "1,16"]
    running = subprocess.Popen(
        [*command, "-o", str(tmp_path / "s.json")], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**environment(), "NUMBA_DISABLE_JIT": "0", "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        preexec_fn=hear_interrupts,
    )  # fmt: skip
    assert running.stderr is not None
    assert running.stderr.readline().startswith("note: ")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out) == (130, "")
    assert "interrupted; no file was left half-written" in err
    assert (tmp_path / "s.json").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["s.json"]
