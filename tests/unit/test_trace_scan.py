"""The scan against sums over plain columns; memory that does not grow with the trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.trace import scan, source
from easybalance_sim.trace.schema import METADATA_KEY, PHASES
from easybalance_sim.trace.writer import packed
from tests.trace_files import Columns, random_columns, scanned, token_meta, token_trace, write_trace

META = token_meta(layers=(3, 5), experts=8, top_k=2)


def columns(tokens: int = 200) -> Columns:
    rng = np.random.default_rng(3)
    made = random_columns(rng, np.sort(rng.integers(5, 60, tokens)).tolist(), META)
    return made | {"request": rng.integers(-4, 30, tokens) * 1000}


@pytest.mark.parametrize("batch_tokens", [7, 65536])
@pytest.mark.parametrize("merge_every", [1, 64])
def test_equals_sums_over_plain_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_tokens: int, merge_every: int
) -> None:
    monkeypatch.setattr(source, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(scan, "_MERGE_EVERY", merge_every)
    known = columns()
    trace = token_trace(write_trace(tmp_path / "t.parquet", known, META))
    found = trace.scan()
    assert (found.tokens, found.steps) == (200, len(np.unique(known["step"])))
    assert (found.first_step, found.last_step) == (known["step"].min(), known["step"].max())
    assert found.max_source == known["source_rank"].max() and found.has_time
    for name, code in zip(PHASES, range(3), strict=True):
        assert found.phase_tokens[code] == np.count_nonzero(known["phase"] == name)
    for code, name in enumerate(trace.workloads):
        assert found.workload_tokens[code] == np.count_nonzero(known["workload"] == name)
    assert found.request.tolist() == np.unique(known["request"]).tolist() and found.requests == len(found.request)
    for index, request in enumerate(found.request.tolist()):
        mine = np.flatnonzero(known["request"] == request)
        assert found.request_first[index] == known["step"][mine[0]]
        assert found.request_last[index] == known["step"][mine[-1]]
        assert found.request_tokens[index] == len(mine)
        assert trace.workloads[found.request_workload[index]] == known["workload"][mine[0]]


def test_without_optional_columns(tmp_path: Path) -> None:
    bare = {name: columns()[name] for name in ("step", "request", "experts")}
    found = token_trace(write_trace(tmp_path / "t.parquet", bare, META)).scan()
    assert found.max_source == -1 and not found.has_time
    assert found.phase_tokens.tolist() == [0, 0, 200] and found.workload_tokens.tolist() == [200]


def test_of_nothing() -> None:
    found = scanned([])
    assert (found.tokens, found.steps, found.requests, found.has_time) == (0, 0, 0, False)


STREAM = """
import resource, sys
from pathlib import Path
from easybalance_sim.trace import dataset, source

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

source.BATCH_TOKENS = 16384
trace = dataset.open_trace([Path(sys.argv[1])])
trace.scan()
scanned = peak_mb()
for batch in trace.batches():
    pass
print(scanned, peak_mb())
"""


def _peaks_mb(path: Path, tokens: int, row_group: int) -> tuple[int, int]:
    """Peak memory of a process after a scan and after a full pass over a trace of 256 bytes per token."""
    rng, some = np.random.default_rng(0), 20_000
    meta = token_meta(layers=range(32), experts=256, top_k=8)
    ids = rng.integers(0, 256, (some, 32, 1), np.uint8) + np.arange(8, dtype=np.uint8)
    steps = pa.array(np.arange(tokens, dtype=np.int32) // 128)
    columns = {"request": pa.array(np.arange(some) % 128), "experts": packed(ids)}
    table = pa.concat_tables([pa.table(columns)] * (tokens // some)).append_column("step", steps)
    table = table.replace_schema_metadata({METADATA_KEY: meta.encode()})
    pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=row_group)
    done = subprocess.run([sys.executable, "-c", STREAM, path], capture_output=True, text=True, check=True, timeout=120)
    scanned, read = map(int, done.stdout.split())
    return scanned, read


@pytest.mark.parametrize("row_group", [32_768, 10_000_000], ids=["many-row-groups", "one-row-group"])
def test_memory_does_not_grow_with_the_trace(tmp_path: Path, row_group: int) -> None:
    short, long = (_peaks_mb(tmp_path / "t.parquet", tokens, row_group) for tokens in (100_000, 500_000))
    assert long[0] - short[0] < 40, f"scan: {short[0]} MB, then {long[0]} MB"
    assert long[1] - short[1] < 40, f"batches: {short[1]} MB, then {long[1]} MB"
