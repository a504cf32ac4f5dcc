"""Count traces: what is read, what is refused and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import DECODE, METADATA_KEY, PREFILL, UNKNOWN_PHASE
from easybalance_sim.trace.writer import write_count_trace
from tests.trace_files import count_trace, token_meta

META = token_meta(layers=(4, 9), experts=3, top_k=2, kind="counts")
COUNTS = [[2, 1, 1], [0, 2, 2], [3, 3, 0], [1, 2, 3]]


def write(path: Path, **changes: Any) -> Path:
    """Two windows × two layers; a change of None leaves a column out."""
    columns: dict[str, Any] = {"window": [0, 0, 1, 1], "layer": [4, 9, 4, 9], "counts": COUNTS} | changes
    table = pa.table({name: pa.array(values) for name, values in columns.items() if values is not None})
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: META.encode()}), path)
    return path


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.large_list(pa.uint16()), pa.list_(pa.float64()), pa.list_(pa.int32(), 3)]
)
def test_counts_from_any_list(tmp_path: Path, kind: Any) -> None:
    trace = count_trace(write(tmp_path / "c.parquet", counts=pa.array(COUNTS, kind)))
    assert trace.tokens.dtype == np.int64 and not trace.tokens.flags.writeable
    assert trace.tokens.tolist() == [COUNTS[:2], COUNTS[2:]]


def test_missing_columns_have_defaults(tmp_path: Path) -> None:
    trace = count_trace(write(tmp_path / "c.parquet", window=None))
    assert trace.window.tolist() == [0, 1] and trace.workloads == ("(none)",)
    assert trace.phase.tolist() == [UNKNOWN_PHASE] * 2 and trace.start_s.tolist() == [0.0, 0.0]
    # 4 assignments per layer at top-2 are 2 tokens, 6 are 3.
    assert trace.batch_tokens.tolist() == [2, 3]


def test_what_the_file_says(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.parquet",
        phase=["decode", "decode", "prefill", "prefill"],
        workload=["chat", "chat", None, None],
        tokens=[40, 40, None, None],
        start_s=[0.5, 0.5, 2.5, 2.5],
        span_s=[2, 2, 2, 2],
    )
    trace = count_trace(path)
    assert trace.phase.tolist() == [DECODE, PREFILL]
    assert [trace.workloads[code] for code in trace.workload] == ["chat", "(none)"]
    assert trace.batch_tokens.tolist() == [40, 3]
    assert (trace.start_s.tolist(), trace.span_s.tolist()) == ([0.5, 2.5], [2.0, 2.0])


def test_files_follow_each_other(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.parquet", workload=[f"w{i}"] * 4) for i in range(2)]
    trace = count_trace(*paths)
    assert trace.window.tolist() == [0, 1, 2, 3] and trace.paths == tuple(map(str, paths))
    assert [trace.workloads[code] for code in trace.workload] == ["w0", "w0", "w1", "w1"]
    assert trace.tokens.sum() == 2 * np.sum(COUNTS)


def test_what_the_writer_wrote_comes_back(tmp_path: Path) -> None:
    trace = count_trace(write(tmp_path / "a.parquet", workload=["x", "x", "y", "y"], tokens=[5, 5, 6, 6]))
    write_count_trace(tmp_path / "b.parquet", trace)
    again = count_trace(tmp_path / "b.parquet")
    assert again.meta == META and again.workloads == trace.workloads
    for name in ("tokens", "window", "start_s", "span_s", "phase", "workload", "batch_tokens"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layer": None}, "column layer is missing"),
        ({"counts": None}, "column counts is missing"),
        ({"layer": ["4", "9", "4", "9"]}, "column layer has type string, expected an integer"),
        ({"layer": [4, 9, 9, 4]}, "column layer, row 2: each token needs its 2 layers"),
        ({"layer": [4, 9, None, 9]}, "column layer, row 2"),
        ({"counts": [1, 2, 3, 4]}, "column counts has type int64, expected a list of counts"),
        ({"counts": ["a"] * 4}, "column counts has type string"),
        ({"counts": [[1, 2, 3], [1, 2], [1, 2, 3, 4], [1, 2, 3]]}, "column counts, row 1: 2 counts, expected 3"),
        ({"counts": [[1, 2, 3], None, [1, 2, 3], [1, 2, 3]]}, "column counts, row 1: no value"),
        ({"counts": [[1, 2, 3]] * 3 + [[1, None, 3]]}, "column counts, row 3: a value is missing"),
        ({"counts": [[1, 2, 3]] * 3 + [[1, -2, 3]]}, "column counts, row 3, layer 9: -2 is not a count"),
        ({"counts": [[1, 2, 0.5]] + [[1.0, 2, 3]] * 3}, "column counts, row 0, layer 4: 0.5 is not a count"),
        ({"counts": [[1.0, 2, 3]] * 2 + [[1, 2, float("nan")]] * 2}, "row 2, layer 4: nan is not a count"),
        ({"counts": [[1.0, 2, 3]] * 3 + [[1, 2, float("inf")]]}, "row 3, layer 9: inf is not a count"),
        ({"tokens": ["many"] * 4}, "column tokens has type string, expected a number"),
        ({"phase": [1, 1, 1, 1]}, "column phase has type int64, expected text"),
    ],
)
def test_bad_counts_name_column_and_row(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    path = write(tmp_path / "c.parquet", **changes)
    with pytest.raises(TraceError, match=says) as caught:
        count_trace(path)
    assert caught.value.where == str(path) and caught.value.fix


def test_no_rows(tmp_path: Path) -> None:
    columns = {"layer": pa.array([], pa.int64()), "counts": pa.array([], pa.list_(pa.int64()))}
    with pytest.raises(TraceError, match="file has no rows"):
        count_trace(write(tmp_path / "c.parquet", window=None, **columns))


def test_a_damaged_file(tmp_path: Path) -> None:
    path = write(tmp_path / "c.parquet")
    write_count_trace(tmp_path / "d.parquet", count_trace(path))
    content = bytearray((tmp_path / "d.parquet").read_bytes())
    content[150:160] = b"\xff" * 10
    (tmp_path / "d.parquet").write_bytes(content)
    with pytest.raises(TraceError, match=r"d\.parquet: damaged Parquet file"):
        count_trace(tmp_path / "d.parquet")
