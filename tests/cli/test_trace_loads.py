"""`ebsim trace loads` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from easybalance_sim.plan.planfile import write_plan
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from tests.ebsim_process import SAMPLE, ebsim, ebsim_here, one_line
from tests.plan_documents import example_document
from tests.skewed_traces import LAYERS, RANKS, skewed_counts, skewed_trace

COLUMNS = [
    "step", "steps", "phase", "layer", "rank", "step_tokens", "assignments", "local_tokens", "activated_experts",
    "busiest_expert_tokens",
]  # fmt: skip


def loads(*arguments: str | Path) -> dict[str, Any]:
    """The JSON report."""
    done = ebsim_here("trace", "loads", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return skewed_trace(tmp_path_factory.mktemp("traces") / "skewed.parquet", 40)


def test_a_row_for_every_step_layer_and_rank(trace: Path, tmp_path: Path) -> None:
    report = loads(trace, "--ranks", str(RANKS), "-o", tmp_path / "loads.parquet")
    table = pd.read_parquet(tmp_path / "loads.parquet")
    assert list(table) == COLUMNS
    assert len(table) == 40 * len(LAYERS) * RANKS
    key = table[["step", "layer", "rank"]]
    assert key.equals(key.sort_values(["step", "layer", "rank"])) and not key.duplicated().any()
    opened = open_trace([trace])
    assert isinstance(opened, TokenTrace)
    per_step = table.groupby(["step", "layer"])["assignments"].sum()
    assert (per_step == 32 * opened.meta.top_k).all() and (table["step_tokens"] == 32).all()
    assert report["phases"]["decode"]["all_layers"]["local_tokens"]["mean"] == pytest.approx(
        table["local_tokens"].mean(), rel=1e-5
    )


def test_contiguous_loads_are_those_of_the_recorded_experts(trace: Path, tmp_path: Path) -> None:
    loads(trace, "--ranks", str(RANKS), "-o", tmp_path / "loads.csv")
    table = pd.read_csv(tmp_path / "loads.csv")
    opened = open_trace([trace])
    assert isinstance(opened, TokenTrace)
    batches = list(opened.batches())
    step, experts = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("step", "experts"))
    for at, layer, rank in ((0, 0, 0), (7, 1, 2), (39, 1, 3)):
        mine = experts[step == at, layer]
        here = mine // 4 == rank
        counts = np.bincount(mine[here], minlength=16)
        rows = table[(table["step"] == at) & (table["layer"] == LAYERS[layer]) & (table["rank"] == rank)]
        assert rows[COLUMNS[6:]].to_numpy().tolist()[0] == [
            here.sum(), here.any(axis=1).sum(), np.count_nonzero(counts), counts.max()
        ]  # fmt: skip


def test_a_window_holds_the_means_of_its_steps(trace: Path, tmp_path: Path) -> None:
    for name, more in (("steps.csv", ()), ("windows.csv", ("--window-steps", "16"))):
        loads(trace, "--ranks", str(RANKS), *more, "-o", tmp_path / name)
    steps, windows = (pd.read_csv(tmp_path / name) for name in ("steps.csv", "windows.csv"))
    assert sorted(windows["steps"].unique()) == [8, 16] and sorted(windows["step"].unique()) == [0, 16, 32]
    wanted = steps.groupby([steps["step"] // 16, "layer", "rank"])[COLUMNS[5:]].mean()
    assert windows[COLUMNS[5:]].to_numpy() == pytest.approx(wanted.to_numpy(), abs=1e-3)


def test_a_plan_is_followed_on_its_own_cluster(trace: Path, tmp_path: Path) -> None:
    plan, flags = tmp_path / "plan.json", ("--ranks", "4", "--slots-per-rank", "5", "--policy", "eplb", "--force")
    done = ebsim_here("plan", trace, *flags, "-o", plan)
    assert plan.exists(), done.stderr
    report = loads(trace, "--plan", plan, "--workload", "left")
    assert (report["placement"], report["cluster"]["ranks"], report["dispatch"]) == ("eplb", 4, "even")
    even = loads(trace, "--ranks", "4", "--workload", "left")
    spread = [one["phases"]["decode"]["all_layers"]["local_tokens"] for one in (report, even)]
    assert spread[0]["p99"] <= spread[1]["p99"]
    law = [one["phases"]["decode"]["all_layers"]["power_law"] for one in (report, even)]
    assert law[0] == law[1], "how uneven experts are does not depend on where they live"


def test_counts_are_windows_with_expected_loads(tmp_path: Path) -> None:
    counts = skewed_counts(tmp_path / "counts.parquet", 6)
    done = ebsim_here(
        "trace", "loads", counts, "--ranks", "4", "--phase", "prefill", "-o", tmp_path / "loads.csv", "--format", "json"
    )
    report = json.loads(done.stdout)
    assert "each window stands for one step" in done.stderr
    assert list(report["phases"]) == ["prefill"] and report["phases"]["prefill"]["steps"] == 3
    table = pd.read_csv(tmp_path / "loads.csv")
    assert table.groupby(["step", "layer"])["assignments"].sum().round().nunique() == 1


def test_the_table_has_a_line_per_layer_and_phase() -> None:
    done = ebsim("trace", "loads", SAMPLE, "--ranks", "8", "--phase", "decode")
    lines = done.stdout.splitlines()
    assert sum(line.startswith("layer") for line in lines) == 1
    assert [line.split()[0] for line in lines if line[:1].isdigit() and "tokens" not in line] == list("01234567")
    assert lines[-1].startswith("all ")


def test_refusals_are_one_line_and_leave_no_file(trace: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    write_plan(plan, example_document())
    out = tmp_path / "loads.csv"
    for arguments, said in (
        ((trace, "-o", tmp_path / "loads.txt"), "a table of loads is .csv or .parquet"),
        ((trace, "--plan", plan, "-o", out), "the plan is for 2 layers × 4 experts"),
        ((trace, "--dispatch", "fair", "-o", out), "'fair' is not known"),
        ((trace, "--phase", "prefill", "-o", out), "no token is left"),
        ((trace, "--workload", "middle", "-o", out), "the trace has no workload 'middle'"),
        ((trace, "--ranks", "4", "--cluster", plan, "-o", out), "--cluster and --ranks do not go together"),
    ):
        done = ebsim_here("trace", "loads", *arguments)
        assert done.returncode == 2 and said in done.stderr.splitlines()[-1], done.stderr
        assert done.stdout == "" and not out.exists()


def test_the_trace_is_not_written_over(trace: Path) -> None:
    before = trace.read_bytes()
    done = ebsim_here("trace", "loads", trace, "--ranks", "4", "-o", trace)
    assert done.returncode == 2 and "would be lost" in one_line(done)
    assert trace.read_bytes() == before
