"""A trace larger than memory should be: peak memory of `ebsim replay` and its speed beside bare decoding of the file.

EBSIM_BENCH_GB (1) says how many gigabytes of ids the trace holds; it is written to pytest's temporary folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.long_traces import BLOCK_TOKENS, Shape, measured, write_long_trace

SHAPE = Shape(layers=58, experts=256, top_k=8, ranks=32, step_tokens=4096)
MOST_MB = 1500


@pytest.mark.bench
def test_a_trace_larger_than_memory(tmp_path: Path, publish: Callable[[str], None]) -> None:
    gigabytes = float(os.environ.get("EBSIM_BENCH_GB", "1"))
    tokens = max(8, round(gigabytes * 1e9 / SHAPE.token_bytes / BLOCK_TOKENS)) * BLOCK_TOKENS
    short = write_long_trace(tmp_path / "short.parquet", SHAPE, 8 * BLOCK_TOKENS)
    trace = write_long_trace(tmp_path / "long.parquet", SHAPE, tokens)
    cluster = ("--ranks", SHAPE.ranks, "--slots-per-rank", 9)
    fitted = measured(
        "plan", short, *cluster, "--policy", "eplb", "--split", "request", "--force", "-o", "plan.json", cwd=tmp_path
    )
    assert fitted.code != 2
    lines = [f"{tokens * SHAPE.token_bytes / 1e9:.1f} GB of ids, {tokens / 1e6:.1f} M tokens"]
    for name, path in (("short", short), ("long", trace)):
        taken = measured("replay", path, "--plan", "plan.json", "--format", "json", cwd=tmp_path)
        replayed = json.loads(taken.output)["split"]["held_out_tokens"]
        rate = 3 * replayed * SHAPE.token_bytes / taken.seconds / 1e6
        lines.append(f"replay, {name}: peak {taken.peak_mb} MB, {taken.seconds:.0f} s, {rate:.0f} M assignments/s")
        assert taken.peak_mb < MOST_MB
    decode_s = _decode_s(trace)
    lines.append(f"decoding the file once with pyarrow: {decode_s:.0f} s")
    publish("\n".join(lines))


def _decode_s(path: Path) -> float:
    """All columns, batch by batch."""
    begin = time.monotonic()
    for _ in pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20).iter_batches(batch_size=1 << 16):
        pass
    return time.monotonic() - begin
