"""What SGLang 0.5.23's own recorder dumps, imported: exactly the routing that it was fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.arrays import IntArray
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import CountTrace
from tests.ebsim_process import ebsim_here
from tests.engines.engine_plans import Case
from tests.engines.sglang_recording import Recording, Traffic, one_process
from tests.engines.sglang_runtime import SGLang

pytestmark = pytest.mark.engine_loader

CASE = Case(ranks=4, nodes=1, experts=16, slots_per_rank=5, dense=1, moe=3)
STEPS, TOP_K = 6, 4
TRAFFIC = Traffic.random(CASE, steps=STEPS, tokens=300, top_k=TOP_K)
COUNTS = TRAFFIC.counts(CASE.experts)


def imported(folder: Path, *more: str) -> TokenTrace | CountTrace:
    """The trace that `ebsim import` makes of the dumps in a folder; nobody says which layers are dense."""
    trace = folder.parent / f"{folder.name}.parquet"
    done = ebsim_here("import", "sglang-recorder", folder, "-o", trace, "--experts", "16", "--top-k", "4", *more)
    assert done.returncode == 0, done.stderr
    opened = open_trace([trace])
    assert opened.meta.layers == (1, 2, 3)
    return opened


def counts_of(trace: TokenTrace | CountTrace) -> IntArray:
    """int64[W, L, E] assignments of a count trace."""
    assert isinstance(trace, CountTrace)
    return trace.tokens


def record(sglang: SGLang, tmp_path: Path, mode: str, ranks: list[int], buffer: int = -1) -> Path:
    """A folder with the dumps of these ranks under a plan that moves experts."""
    folder = tmp_path / mode
    plan = CASE.plan()
    assert (plan.expert_of_slot != np.arange(plan.slots)).any()
    Recording(case=CASE, plan=plan, mode=mode, buffer=buffer).dump(sglang, TRAFFIC, folder, ranks)
    return folder


def test_totals_are_those_fed(sglang: SGLang, tmp_path: Path) -> None:
    with one_process(sglang, tmp_path):
        folder = record(sglang, tmp_path, "stat", [0])
    assert counts_of(imported(folder)).tolist() == COUNTS.tolist()


def test_a_buffer_with_room_keeps_every_pass_in_order(sglang: SGLang, tmp_path: Path) -> None:
    with one_process(sglang, tmp_path):
        folder = record(sglang, tmp_path, "stat", [0], buffer=STEPS + 3)
    assert counts_of(imported(folder)).tolist() == COUNTS.tolist()


def test_a_full_buffer_keeps_the_last_passes_rotated(sglang: SGLang, tmp_path: Path) -> None:
    with one_process(sglang, tmp_path):
        folder = record(sglang, tmp_path, "stat", [0], buffer=4)
    assert counts_of(imported(folder)).tolist() == COUNTS[[4, 5, 2, 3]].tolist()


def test_passes_of_all_ranks_add_up_to_those_fed(sglang: SGLang, tmp_path: Path) -> None:
    folder = record(sglang, tmp_path, "per_pass", [0, 1, 2, 3])
    assert len(list(folder.iterdir())) == 4
    assert counts_of(imported(folder)).tolist() == COUNTS.tolist()


def test_tokens_of_all_ranks_are_those_fed(sglang: SGLang, tmp_path: Path) -> None:
    trace = imported(record(sglang, tmp_path, "per_token", [0, 1, 2, 3]))
    assert isinstance(trace, TokenTrace)
    found = list(trace.batches())
    step, rank, experts = (
        np.concatenate([getattr(b, name) for b in found]) for name in ("step", "source_rank", "experts")
    )
    order = np.lexsort((rank, step))
    assert step[order].tolist() == TRAFFIC.step.tolist()
    assert rank[order].tolist() == TRAFFIC.rank.tolist()
    assert experts[order].tolist() == TRAFFIC.experts.tolist()
    assert np.concatenate([b.phase for b in found])[order].tolist() == np.where(TRAFFIC.step == 0, 0, 1).tolist()


def test_counts_beside_the_tokens_are_those_fed(sglang: SGLang, tmp_path: Path) -> None:
    folder = record(sglang, tmp_path, "per_token", [0, 1, 2, 3])
    assert counts_of(imported(folder, "--counts-only")).tolist() == COUNTS.tolist()
