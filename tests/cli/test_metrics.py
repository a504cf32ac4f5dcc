"""`--metrics` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ebsim_process import ebsim_here, one_line
from tests.exposition import read
from tests.skewed_traces import LAYERS, skewed_trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """trace.parquet, plan.json with the report that it was printed with, and plan.prom."""
    folder = tmp_path_factory.mktemp("metrics")
    skewed_trace(folder / "trace.parquet")
    flags = ("--ranks", "4", "--ranks-per-node", "2", "--slots-per-rank", "5", "--policy", "eplb", "--force")
    files = ("-o", folder / "plan.json", "--metrics", folder / "plan.prom", "--format", "json")
    (folder / "report.json").write_text(ebsim_here("plan", folder / "trace.parquet", *flags, *files).stdout)
    return folder


def test_the_gauges_are_the_figures_of_the_report(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    found = read((folder / "plan.prom").read_text()).samples
    (verdict,) = [labels for labels, value in found["ebsim_verdict"] if value == 1]
    assert verdict == {"status": report["verdict"]["status"], "phase": "decode", "plan": report["fingerprint"]}
    tails = {labels["side"]: value for labels, value in found["ebsim_rank_max_to_mean"] if labels["stat"] == "p99"}
    assert tails == {side: report[side]["rank_imbalance"]["p99"] for side in ("baseline", "plan")}
    assert {labels["layer"] for labels, _ in found["ebsim_node_max_to_mean"]} == {str(layer) for layer in LAYERS}
    assert found["ebsim_migration_bytes"][0][1] == report["migration"]["bytes"] > 0
    copies = {labels["scope"] for labels, value in found["ebsim_copies_per_token"] if value > 0}
    assert copies == {"same_node", "cross_node"}
    assert "load" not in json.loads((folder / "plan.json").read_text())["evidence"]


def test_replay_writes_them_whatever_the_verdict(folder: Path, tmp_path: Path) -> None:
    short = skewed_trace(tmp_path / "short.parquet", steps=24)
    done = ebsim_here("replay", short, "--plan", folder / "plan.json", "--metrics", tmp_path / "out.prom")
    assert done.returncode == 3
    found = read((tmp_path / "out.prom").read_text()).samples
    assert [labels["status"] for labels, value in found["ebsim_verdict"] if value] == ["insufficient_evidence"]


def test_a_place_that_does_not_do_is_refused_before_the_run(folder: Path, tmp_path: Path) -> None:
    for place, says in (
        (tmp_path / "absent" / "out.prom", "there is no folder"),
        (folder / "trace.parquet", "the run reads this file"),
    ):
        done = ebsim_here("replay", folder / "trace.parquet", "--plan", folder / "plan.json", "--metrics", place)
        assert done.returncode == 2
        assert says in one_line(done) and "--metrics" in done.stderr
