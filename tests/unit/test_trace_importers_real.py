"""Importers on published recordings (skipped where the data is not beside the checkout)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.trace import importers
from easybalance_sim.trace.conversion import Conversion
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import CountTrace

DATA = Path(__file__).parents[3] / "shared" / "data"
GPTOSS, DEEPSEEK = DATA / "gptoss20b_routing", DATA / "deepseek_v3_counts" / "mmlu_counts.parquet"


@pytest.mark.skipif(not GPTOSS.exists(), reason=f"no recording at {GPTOSS}")
def test_gptoss_tokens_are_all_there_and_unchanged(tmp_path: Path) -> None:
    out = tmp_path / "gptoss.parquet"
    job = Conversion(source=GPTOSS, output=out, model=load_shape("gpt-oss-20b"), drain=True, seed=3)
    (written,) = importers.find(GPTOSS).convert(job)
    assert (written.tokens, written.layers, written.experts, written.top_k) == (215438, 24, 32, 4)
    trace = open_trace([out])
    assert isinstance(trace, TokenTrace)
    scan = trace.check()
    assert scan.requests == 703 and np.count_nonzero(scan.workload_tokens) == 11
    counts = np.zeros((24, 32), np.int64)
    running = np.zeros(scan.last_step + 1, np.int64)
    for batch in trace.batches():
        running += np.bincount(batch.step, minlength=len(running))
        for layer in range(24):
            counts[layer] += np.bincount(batch.experts[:, layer].ravel(), minlength=32)
    assert running.max() == 128
    source = pq.read_table(GPTOSS / "routing_tokens.parquet")["experts"].combine_chunks().flatten().to_numpy()
    for layer, chosen in enumerate(source.reshape(-1, 24, 4).transpose(1, 0, 2)):
        assert counts[layer].tolist() == np.bincount(chosen.ravel(), minlength=32).tolist()


@pytest.mark.skipif(not DEEPSEEK.exists(), reason=f"no counts at {DEEPSEEK}")
def test_deepseek_counts_keep_their_published_skew(tmp_path: Path) -> None:
    job = Conversion(source=DEEPSEEK, output=tmp_path / "dsv3.parquet", model=load_shape("deepseek-v3"))
    written = importers.find(DEEPSEEK).convert(job)
    assert [one.path.name for one in written] == ["dsv3-4k.parquet", "dsv3-8k.parquet"]
    for one, spread in zip(written, ((3.88, 7.14, 21.09), (3.00, 6.13, 20.63)), strict=True):
        trace = open_trace([one.path])
        assert isinstance(trace, CountTrace)
        assert trace.meta.layers == tuple(range(3, 61)) and trace.meta.groups == 8
        peak = trace.tokens[0].max(axis=1) / trace.tokens[0].mean(axis=1)
        assert (peak.min(), np.median(peak), peak.max()) == pytest.approx(spread, abs=0.01)
