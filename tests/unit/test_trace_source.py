"""A file is read only while it is the one that the run began with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.files import identity
from easybalance_sim.trace.writer import token_trace_writer
from tests.replay_cases import batch_of, random_ids
from tests.trace_files import token_meta

OTHER = "t.parquet: is another file than the one the run began with — put the same trace under this path on every"


def written(path: Path, seed: int, tokens: int = 4096) -> Path:
    meta = token_meta(layers=tuple(range(4)), experts=16, top_k=2, ranks=4)
    rows = np.arange(tokens)
    with token_trace_writer(path, meta, ("(none)",)) as writer:
        writer.append(batch_of(rows // 64, rows % 4, random_ids(seed, tokens, 4, 16, 2)))
    return path


def opened(path: Path) -> TokenTrace:
    trace = open_trace([path])
    assert isinstance(trace, TokenTrace)
    return trace


@pytest.mark.parametrize("change", ["other ids", "shorter", "cut", "no Parquet"])
def test_another_file_under_the_path(change: str, tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", 0)
    trace = opened(path)
    trace.scan()
    written(tmp_path / "new.parquet", 1 if change == "other ids" else 0, 2048 if change == "shorter" else 4096)
    if change in ("cut", "no Parquet"):
        (tmp_path / "new.parquet").write_bytes(path.read_bytes()[:3000] if change == "cut" else b"text")
    (tmp_path / "new.parquet").replace(path)
    with pytest.raises(TraceError, match=OTHER):
        trace.check()


def test_a_copy_is_the_same_file(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", 0)
    trace = opened(path)
    trace.scan()
    shutil.copyfile(path, tmp_path / "copy.parquet")
    (tmp_path / "copy.parquet").replace(path)
    os.utime(path, (1, 1))
    assert trace.check().tokens == 4096


def test_equal_footers_do_not_hide_other_pages(tmp_path: Path) -> None:
    """Recordings of one model have as many rows and bytes, and the same least and greatest ids."""
    path = written(tmp_path / "t.parquet", 0)
    before, data = identity(path), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert identity(path) != before
