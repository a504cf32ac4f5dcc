"""Runs on traces that are cut into many parts, and on those too long for all of their windows to be counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from easybalance_sim.load import counting
from easybalance_sim.trace import source
from easybalance_sim.workers import threads
from tests.listeners import Heard
from tests.plan_runs import run
from tests.skewed_traces import skewed_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row groups of 100 tokens: they end inside steps of 32."""
    path = skewed_trace(tmp_path_factory.mktemp("long") / "skewed.parquet", steps=192)
    pq.write_table(pq.read_table(path), path, row_group_size=100)
    return path


def figures(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "timing_s"}


@pytest.mark.parametrize("split", ["time", "request"])
def test_parts_and_threads_do_not_matter(trace: Path, split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"ranks_per_node": 2, "dispatch": "vllm"}
    whole, _ = run(trace, said=said, split=split)
    monkeypatch.setattr(source, "SPAN_TOKENS", 1)
    monkeypatch.setattr(source, "BATCH_TOKENS", 77)
    for cores in (1, 7):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        found, _ = run(trace, said=said, split=split)
        assert figures(found) == figures(whole)


def test_of_a_long_trace_a_sample_of_the_windows_is_counted(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    whole, _ = run(trace, heard, said={"window_steps": 1}, split="request")
    assert not any("long" in note for note in heard.notes)
    monkeypatch.setattr(counting, "WINDOW_BYTES", 30_000)
    report, _ = run(trace, heard, said={"window_steps": 1}, split="request")
    (note,) = [note for note in heard.notes if "long" in note]
    every = int(note.partition("one of ")[2].split()[0])
    assert every > 1
    assert abs(report["split"]["fit_windows"] - whole["split"]["fit_windows"] / every) <= 1
    assert report["split"]["held_out_tokens"] == whole["split"]["held_out_tokens"]
    assert report["plan"]["rank_imbalance"]["p99"] < report["baseline"]["rank_imbalance"]["p99"]
