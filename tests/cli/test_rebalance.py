"""`ebsim rebalance` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from easybalance_sim.trace.counts import read_count_trace
from easybalance_sim.trace.dataset import open_trace
from easybalance_sim.trace.writer import write_count_trace
from tests.ebsim_process import ebsim, ebsim_here, one_line
from tests.one_text import unbroken
from tests.skewed_traces import skewed_counts

CLUSTER = ("--ranks", "4", "--slots-per-rank", "5")
# Six windows are too few for a search, which takes most of the time.
QUICK = (*CLUSTER, "--first", "0.1")
REPORT = {"trace", "cluster", "offline_policy", "cost", "timeline", "loops", "notes"}
TRACE = {
    "files", "fingerprint", "model", "layers", "experts", "top_k", "windows", "offline_windows", "steps",
    "tokens_per_step",
}  # fmt: skip
LOOP = {
    "policy", "seconds", "saved_s_per_hour", "step_us", "step_us_with_pauses", "rank_imbalance", "replans",
    "oscillations", "moves", "bytes", "transfer_s", "pauses", "pause_s", "longest_pause_s", "break_even_steps",
    "staging_bytes", "alarms", "events", "timeline",
}  # fmt: skip
EVENT = {
    "window", "moves", "bytes", "transfer_s", "pause_s", "staging_slots", "oscillates", "steps", "saved_s",
    "step_p99_us", "step_p99_us_without",
}  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_counts(tmp_path_factory.mktemp("over-time") / "counts.parquet", 60)


def _loops(report: dict[str, Any]) -> dict[str, Any]:
    return {loop["policy"]: loop for loop in report["loops"]}


def test_all_loops_side_by_side(trace: Path) -> None:
    done = ebsim("rebalance", trace, *CLUSTER, "--step-tokens", "4000", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 0 and set(report) == REPORT and set(report["trace"]) == TRACE
    assert (report["trace"]["windows"], report["trace"]["offline_windows"]) == (60, 12)
    loops = _loops(report)
    assert list(loops) == [
        "never", "static", "sglang", "sglang-chunked", "vllm", "vllm-sync", "tensorrt-llm", "vllm-ascend", "guarded",
    ]  # fmt: skip
    assert all(set(loop) == LOOP for loop in loops.values())
    assert all(set(event) == EVENT for loop in loops.values() for event in loop["events"])
    assert loops["never"]["saved_s_per_hour"] == 0 and loops["static"]["saved_s_per_hour"] > 1000
    # Traffic that only differs by chance is left alone; 48 windows of 40 steps hold one interval of 1000.
    assert (loops["guarded"]["replans"], loops["sglang"]["replans"], loops["sglang"]["pauses"]) == (0, 1, 1)
    assert loops["guarded"]["seconds"] == loops["static"]["seconds"]
    chunked, whole = loops["sglang-chunked"], loops["sglang"]
    assert chunked["pauses"] > 1 and chunked["longest_pause_s"] < whole["longest_pause_s"]
    assert abs(chunked["pause_s"] - whole["pause_s"]) < 0.05 * whole["pause_s"]
    assert loops["vllm-sync"]["pause_s"] > 0 == loops["vllm"]["pause_s"]


def test_the_table_says_what_the_hours_are_of(trace: Path) -> None:
    done = ebsim_here("rebalance", trace, *QUICK, "--loop", "guarded", "--hours", "2")
    assert "4 ranks × " in done.stdout and "54 windows of " in done.stdout and "guarded: 0 alarms" in done.stdout
    said = "a step is its MoE layers alone, so what is saved is of their hours (--other-ms)"
    assert said in unbroken(done.stdout)
    beside = ebsim_here("rebalance", trace, *QUICK, "--cold-start", "--loop", "never", "--other-ms", "20")
    assert "a step is its MoE layers and 20 ms" in unbroken(beside.stdout)


def test_a_cold_start_and_a_measured_pause(trace: Path) -> None:
    flags = ("--cold-start", "--loop", "vllm-sync", "--pause-s", "7", "--format", "json")
    report = json.loads(ebsim_here("rebalance", trace, *QUICK, *flags).stdout)
    loops = _loops(report)
    assert list(loops) == ["never", "vllm-sync"] and report["offline_policy"] == "contiguous"
    sync = loops["vllm-sync"]
    assert sync["replans"] == 1 and sync["pause_s"] == 7
    # The first plan comes after 760 of 2160 steps.
    assert 1.0 < sync["rank_imbalance"]["mean"] < loops["never"]["rank_imbalance"]["mean"]
    assert sync["step_us_with_pauses"]["p99"] >= sync["step_us"]["p99"]


def test_each_phase_or_workload_on_its_own(trace: Path) -> None:
    done = ebsim_here("rebalance", trace, *QUICK, "--by", "workload", "--loop", "static", "--format", "json")
    report = json.loads(done.stdout)
    assert (report["by"], sorted(report["strata"])) == ("workload", ["left", "right"])
    assert all(set(one) | {"notes"} == REPORT for one in report["strata"].values())
    table = ebsim_here("rebalance", trace, *QUICK, "--by", "phase", "--loop", "static")
    assert "phase prefill\n" in table.stdout and "phase decode\n" in table.stdout


def test_each_model_revision_on_its_own(tmp_path: Path) -> None:
    files = []
    for revision in ("a", "b"):
        path = skewed_counts(tmp_path / f"{revision}.parquet", 40)
        trace = read_count_trace([path], msgspec.structs.replace(open_trace([path]).meta, model_revision=revision))
        write_count_trace(path, trace)
        files.append(path)
    done = ebsim_here("rebalance", *files, *QUICK, "--by", "model-revision", "--loop", "static", "--format", "json")
    strata = json.loads(done.stdout)["strata"]
    assert list(strata) == ["a", "b"] and {one["trace"]["windows"] for one in strata.values()} == {40}


def test_a_sweep_is_chosen_on_one_half_and_judged_on_the_other(tmp_path: Path) -> None:
    trace = skewed_counts(tmp_path / "counts.parquet", 20)
    command = ("rebalance", trace, *QUICK, "--step-tokens", "4000", "--sweep")
    report = json.loads(ebsim_here(*command, "--format", "json").stdout)
    families = {"never", "static", "periodic", "periodic-sync", "guarded"}
    assert set(report["chosen"]) == {row["family"] for row in report["rows"]} == families
    assert len(report["rows"]) == 2 + 5 * 2 * 2 + 3 * 3 * 2
    for family, chosen in report["chosen"].items():
        mine = [row["chosen_on"]["seconds"] for row in report["rows"] if row["family"] == family]
        assert chosen["chosen_on"]["seconds"] == min(mine) and chosen["judged_on"]["seconds"] > 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--loop", "nope"), "--loop: no control loop 'nope' — choose never, static, "),
        (("--by", "tenant"), "--by: no strata by 'tenant' — choose phase, workload, model-revision"),
        (("--sweep", "--by", "phase"), "--sweep and --by exclude each other"),
        (("--first", "0"), "Invalid value for '--first': 0.0 is not in the range"),
        (("--first", "0.9"), "60 windows, of which 54 make the offline plan — leave 16 or more"),
        (("--pause-s", "nan"), "pause is nan — give a finite number"),
        (("--hours", "inf"), "hours is inf — give a finite number"),
        (("--min-gain", "nan"), "min gain is nan"),
        (("--cooldown", "-1"), "Invalid value for '--cooldown'"),
        (("--current", "absent.json"), "absent.json: cannot read"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(trace: Path, flags: tuple[str, ...], says: str) -> None:
    done = ebsim_here("rebalance", trace, *QUICK, *flags)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert (done.returncode, done.stdout, len(errors)) == (2, "", 1)
    assert says in errors[0]


def test_a_trace_too_short_is_refused(tmp_path: Path) -> None:
    short = skewed_counts(tmp_path / "short.parquet", 10)
    done = ebsim_here("rebalance", short, *QUICK, "--by", "workload")
    assert done.returncode == 2 and "no workload has windows enough" in done.stderr
    assert "absent.parquet" in one_line(ebsim_here("rebalance", tmp_path / "absent.parquet"))
