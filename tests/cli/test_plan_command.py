"""`ebsim plan` as a user runs it: streams, exit codes, JSON keys, and what happens to the plan file."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from easybalance_sim.cluster.topology import MOST_RANKS
from easybalance_sim.plan.planfile import read_plan, write_plan
from tests.ebsim_process import PATIENCE_S, SAMPLE, Done, ebsim, ebsim_here, environment, one_line, python
from tests.json_reports import require_documented
from tests.one_text import unbroken
from tests.plan_documents import example_document
from tests.skewed_traces import skewed_counts, skewed_trace

CLUSTER = ("--ranks", "4", "--slots-per-rank", "5")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("plan") / "skewed.parquet")


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A folder with an earlier plan in it."""
    path = tmp_path / "plan.json"
    write_plan(path, example_document())
    return path


@pytest.fixture
def harsh(tmp_path: Path) -> Path:
    path = tmp_path / "harsh.toml"
    path.write_text("p99_imbalance_drop_min = 0.999\n")
    return path


def plan(trace: Path, *more: str | Path) -> Done:
    return ebsim("plan", trace, *CLUSTER, *more)


def plan_here(trace: Path, *more: str | Path) -> Done:
    return ebsim_here("plan", trace, *CLUSTER, *more)


def test_accepted_json_is_documented_and_gate_agrees(trace: Path, tmp_path: Path) -> None:
    done = plan(trace, "--format", "json", "-o", tmp_path / "plan.json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["verdict"]["status"] == "accepted"
    require_documented(report)
    assert report["plan_file"] == str(tmp_path / "plan.json")
    assert report["fingerprint"] == read_plan(tmp_path / "plan.json").fingerprint()
    assert [f"note: {note}" for note in report["notes"]] == [
        line for line in done.stderr.splitlines() if line.startswith("note: ")
    ]
    (tmp_path / "report.json").write_text(done.stdout)
    judged = ebsim_here("gate", tmp_path / "report.json", "--format", "json")
    assert (judged.returncode, json.loads(judged.stdout)) == (0, report["verdict"])


def test_the_table_is_the_result_and_notes_are_not_in_it(trace: Path, tmp_path: Path) -> None:
    done = plan_here(trace, "-o", tmp_path / "plan.json")
    assert done.returncode == 0
    assert done.stdout.startswith("ACCEPTED: ") and f"written to {tmp_path / 'plan.json'}" in unbroken(done.stdout)
    assert "rank imbalance, mean" in done.stdout and "p99_imbalance_drop_min" in done.stdout
    assert "note:" not in done.stdout
    unasked = ebsim_here("plan", trace, "--policy", "eplb")
    assert "note: no cluster given" in unasked.stderr and "note:" not in unasked.stdout


def test_rejected_exits_1_leaves_the_old_plan_and_gate_agrees(
    trace: Path, earlier: Path, harsh: Path, tmp_path: Path
) -> None:
    old = earlier.read_bytes()
    done = plan(trace, "--criteria", harsh, "-o", earlier, "--format", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]["status"], report["plan_file"]) == (1, "rejected", None)
    assert earlier.read_bytes() == old
    (tmp_path / "report.json").write_text(done.stdout)
    judged = ebsim_here("gate", tmp_path / "report.json", "--criteria", harsh)
    assert judged.returncode == 1 and judged.stdout.startswith("REJECTED (p99_imbalance_drop_min)\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["harsh.toml", "plan.json", "report.json"]


def test_force_writes_the_verdict_into_the_plan(trace: Path, earlier: Path, harsh: Path) -> None:
    done = plan_here(trace, "--criteria", harsh, "-o", earlier, "--force")
    assert done.returncode == 1
    assert done.stdout.startswith("REJECTED (p99_imbalance_drop_min): ")
    verdict = read_plan(earlier).verdict
    assert verdict["status"] == "rejected"
    assert [f["criterion"] for f in verdict["findings"] if not f["ok"]] == ["p99_imbalance_drop_min"]


def test_insufficient_evidence_exits_3_and_writes_only_by_force(earlier: Path, tmp_path: Path) -> None:
    old, trace = earlier.read_bytes(), skewed_counts(tmp_path / "one.parquet", windows=1)
    done = plan(trace, "-o", earlier)
    assert done.returncode == 3
    assert done.stdout.startswith("INSUFFICIENT_EVIDENCE (held_out_windows_min, fit_windows_min): ")
    assert "nothing is held out" in done.stdout and "note: nothing is held out" in done.stderr
    assert earlier.read_bytes() == old
    assert plan_here(trace, "-o", earlier, "--force").returncode == 3
    assert read_plan(earlier).verdict["status"] == "insufficient_evidence"


def test_the_next_generation_knows_its_parent(trace: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    plan_here(trace, "--policy", "round_robin", "--force", "-o", first)
    done = plan_here(trace, "--current", first, "--force", "--format", "json", "-o", second)
    report = json.loads(done.stdout)
    assert report["baseline"]["policy"] == "keep"
    assert "keep" in [row["policy"] for row in report["candidates"]]
    child = read_plan(second)
    assert (child.generation, child.parent_fingerprint) == (2, read_plan(first).fingerprint())
    eplb = json.loads(plan_here(trace, "--current", first, "--policy", "eplb", "--format", "json").stdout)
    moved = eplb["migration"]
    assert moved["moves"] > 0 and moved["seconds"] > 0
    assert moved["bytes"] == moved["moves"] * eplb["model"]["expert_bytes"]


def test_a_gpu_that_is_not_there_is_refused_in_one_line(trace: Path, earlier: Path) -> None:
    before = earlier.read_bytes()
    done = ebsim("plan", trace, "--device", "gpu", "-o", earlier, env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2
    assert one_line(done).startswith("ebsim: error: --device: no GPU can be used: ")
    assert earlier.read_bytes() == before


def test_two_runs_write_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        assert plan(trace, "--split", "request", "-o", tmp_path / name).returncode == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--policy", "nope"), "--policy: 'nope' is not known — choose contiguous, eplb, "),
        (("--dispatch", "nope"), "--dispatch: 'nope' is not known — choose even, sglang-static, "),
        (("--split", "nope"), "--split: 'nope' is not known — choose time, request, workload"),
        (("--phase", "nope"), "--phase: 'nope' is not known — choose prefill, decode"),
        (("--forecast", "nope"), "--forecast: 'nope' is not known — choose mean, last, "),
        (("--all-to-all", "nope"), "--all-to-all: 'nope' is not known — choose auto, normal, low_latency"),
        (("--device", "nope"), "--device: 'nope' is not known — choose auto, cpu, gpu"),
        (("--workload", "nope"), "--workload: the trace has no workload 'nope' — it has "),
        (("--profile", "nope"), "nope: unknown hardware profile; there are a100, "),
        (("--model", "nope"), "nope: unknown model; known are "),
        (("--model", "mixtral-8x7b"), "--model: model mixtral-8x7b has experts 8, the trace 16"),
        (("--criteria", "nope.toml"), "nope.toml: cannot read"),
        (("--current", "nope.json"), "nope.json: cannot read"),
        (("--held-out", "1"), "--held-out: held-out share 1 is not between 0 and 1"),
        (("--format", "nope"), "Invalid value for '--format'"),
        (("--window-steps", "0"), "Invalid value for '--window-steps'"),
        (("--window-seconds", "nan"), "--window-seconds: nan is no length of time"),
        (("-o", "absent/plan.json"), "absent/plan.json: there is no folder absent"),
        (("--nope",), "No such option"),
        (("--policy",), "requires an argument"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(trace: Path, flags: tuple[str, ...], says: str) -> None:
    done = ebsim_here("plan", trace, *CLUSTER, *flags)
    assert done.returncode == 2
    assert says in one_line(done)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plan",), "Missing argument"),
        (("plan", "absent.parquet"), "absent.parquet: no such file"),
        (("plan", "{trace}", "--cluster", "nope.toml"), "nope.toml: cannot read"),
        (("plan", "{trace}", "--cluster", "nope.toml", "--ranks", "8"), "exclude each other"),
        (("plan", "{trace}", "--ranks", "8", "--slots-per-rank", "1"), "8 slots cannot hold 16 experts"),
        (("nope",), "No such command"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(trace: Path, arguments: tuple[str, ...], says: str) -> None:
    done = ebsim_here(*(argument.replace("{trace}", str(trace)) for argument in arguments))
    assert done.returncode == 2
    assert says in one_line(done)


def test_a_refused_process_exits_2(trace: Path, earlier: Path) -> None:
    old = earlier.read_bytes()
    done = plan(trace, "--policy", "nope", "-o", earlier)
    assert done.returncode == 2
    assert "--policy" in one_line(done)
    assert earlier.read_bytes() == old


BROKEN = """
from easybalance_sim import pipeline
from easybalance_sim.cli.app import main
def fail(*_: object) -> None:
    raise ZeroDivisionError("of\\nall things")
pipeline.assemble = fail
main()
"""


def test_an_internal_error_is_one_line_and_exit_70(trace: Path, earlier: Path) -> None:
    old, arguments = earlier.read_bytes(), ("-c", BROKEN, "plan", trace, *CLUSTER, "-o", earlier)
    done = python(*arguments)
    assert (done.returncode, done.stdout) == (70, "")
    *notes, line = done.stderr.splitlines()
    assert line == "ebsim: error: internal error: ZeroDivisionError: of all things (EBSIM_DEBUG=1 shows where)"
    assert all(note.startswith("note: ") or re.search(r": \d+ %", note) for note in notes), notes
    assert "Traceback" in python(*arguments, env={"EBSIM_DEBUG": "1"}).stderr
    assert earlier.read_bytes() == old


NAME_TOO_LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", NAME_TOO_LONG),
        ("plan", SAMPLE, "-o", NAME_TOO_LONG),
        ("plan", SAMPLE, "--model", NAME_TOO_LONG),
        ("replay", SAMPLE, "--plan", NAME_TOO_LONG),
        ("trace", "convert", NAME_TOO_LONG, "-o", "out.parquet"),
    ],
    ids=["trace", "output", "model", "plan", "recording"],
)
def test_a_path_that_cannot_be_is_bad_input(arguments: tuple[str | Path, ...]) -> None:
    done = ebsim_here(*arguments)
    assert done.returncode == 2
    assert "File name too long" in one_line(done)


@pytest.mark.parametrize(
    ("flag", "value", "most"),
    [("--ranks", MOST_RANKS + 1, MOST_RANKS), ("--seed", 10**23, 2**32 - 1), ("--step-tokens", 10**9, 2**24)],
)
def test_numbers_beyond_what_can_be_counted_are_refused(flag: str, value: int, most: int) -> None:
    done = ebsim_here("plan", SAMPLE, flag, str(value))
    assert done.returncode == 2
    assert f"Invalid value for '{flag}': {value} is not in the range" in one_line(done) and f"x<={most}" in done.stderr


def test_an_output_that_cannot_be_written_is_refused_before_the_work() -> None:
    done = ebsim_here("plan", SAMPLE, "-o", "/proc/plan.json")
    assert done.returncode == 2
    assert one_line(done).startswith("ebsim: error: /proc/plan.json: cannot write here: ")


SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from easybalance_sim import files
from easybalance_sim.cli.app import main
def publish(temporary, path):
    print("writing", file=sys.stderr, flush=True)
    time.sleep(120)
files._publish = publish
main()
"""


@pytest.mark.parametrize("polite", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_is_one_line_and_exit_130_and_the_old_file_is_whole(polite: int, trace: Path, earlier: Path) -> None:
    old = earlier.read_bytes()
    command = [sys.executable, "-c", SLOW, "plan", str(trace), *CLUSTER, "-o", str(earlier)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "writing\n":
                break
        assert [found.name for found in earlier.parent.iterdir() if found != earlier] != []
        process.send_signal(polite)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "ebsim: interrupted; no file was left half-written"
    assert earlier.read_bytes() == old
    assert [found.name for found in earlier.parent.iterdir()] == ["plan.json"]


def test_a_reader_that_stops_early_does_not_change_the_exit_code(trace: Path) -> None:
    command = [sys.executable, "-m", "easybalance_sim", "-q", "plan", str(trace), *CLUSTER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        err = process.stderr.read().decode()
    assert (process.returncode, err) == (0, "")
