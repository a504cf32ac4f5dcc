"""Traces that cannot be used, as a user meets them: exit 2 and one line with file, column, row, layer and a fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from easybalance_sim.trace.schema import METADATA_KEY
from tests.ebsim_process import ebsim, ebsim_here
from tests.one_text import unbroken
from tests.trace_files import Columns, arrow_table, random_columns, token_meta, write_trace

META = token_meta(layers=(3, 5), experts=8, top_k=2)
STEPS = [0, 1, 1, 2, 2, 2, 3, 3, 3, 4]

Maker = Callable[[Path], Path]


def good(**changes: Any) -> Columns:
    return random_columns(np.random.default_rng(0), STEPS, META) | changes


def ids(row: int, chosen: list[int], layer: int = 1) -> Maker:
    def make(path: Path) -> Path:
        columns = good()
        columns["experts"][row, layer] = chosen
        return write_trace(path, columns, META)

    return make


def lists(layout: str, row: int, values: list[int | None] | None) -> Maker:
    """A list layout in which one file row holds something else."""

    def make(path: Path) -> Path:
        table = arrow_table(good(), META, layout)
        rows = table.column("experts").to_pylist()
        rows[row] = values
        return save(table, path, experts=pa.array(rows, pa.list_(pa.int32())))

    return make


def save(table: Any, path: Path, **columns: Any) -> Path:
    """The table with columns replaced, added, or (None) left out."""
    for name, column in columns.items():
        if name in table.schema.names:
            table = table.drop_columns(name)
        if column is not None:
            table = table.append_column(name, column)
    pq.write_table(table, path)
    return path


def column(name: str, values: Any) -> Maker:
    return lambda path: save(arrow_table(good(), META), path, **{name: values})


def metadata(raw: bytes | None) -> Maker:
    def make(path: Path) -> Path:
        pairs = {} if raw is None else {METADATA_KEY: raw}
        return save(arrow_table(good(), META).replace_schema_metadata(pairs), path)

    return make


def bytes_of(change: Callable[[bytes], bytes]) -> Maker:
    def make(path: Path) -> Path:
        write_trace(path, good(), META)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


def back(path: Path) -> Path:
    """Steps go back between two row groups."""
    steps = np.array([0, 1, 1, 2, 2, 1, 3, 3, 3, 4], np.int32)
    return write_trace(path, good(step=steps), META, row_group=5)


def long_rows(path: Path) -> Path:
    table = arrow_table(good(), META, "long")
    return save(table, path, layer=pa.array([3, 5] * 3 + [5, 3] + [3, 5] * 6))


def damaged(path: Path) -> Path:
    write_trace(path, good(), META)
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(0).column(7).data_page_offset
    content[start : start + 12] = b"\xff" * 12
    path.write_bytes(content)
    return path


def mixed(path: Path) -> Path:
    path.mkdir()
    write_trace(path / "a.parquet", good(), META)
    write_trace(path / "b.parquet", good(), token_meta(layers=(3, 5), experts=7, top_k=2))
    return path


def no_trace_inside(path: Path) -> Path:
    path.mkdir()
    (path / "notes.txt").touch()
    return path


def counts(path: Path) -> Path:
    meta = token_meta(layers=(3, 5), experts=3, top_k=1, kind="counts")
    table = pa.table({"layer": [3, 5, 3, 5], "counts": [[1, 2, 3], [1, 2, 3], [1, 2, 3], [1, -2, 3]]})
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: meta.encode()}), path)
    return path


def wrong_width(path: Path) -> Path:
    return write_trace(path, good(), token_meta(META.layers, META.experts, META.top_k, dtype="uint16"))


def no_rows(path: Path) -> Path:
    return write_trace(path, {name: values[:0] for name, values in good().items()}, META)


CASES: dict[str, tuple[Maker, tuple[str, ...]]] = {
    "id too large": (ids(6, [1, 8]), ("column experts, row 6, layer 5: id 8 is not in 0..7", "correct the ids")),
    "expert twice": (ids(9, [4, 4], 0), ("column experts, row 9, layer 3: expert 4 stands twice", "logical ids")),
    "negative id": (lists("list", 2, [0, 1, -1, 3]), ("column experts, row 2, layer 5: id -1 is not in 0..7",)),
    "negative id in long rows": (lists("long", 9, [0, -7]), ("column experts, row 9, layer 5: id -7", "correct")),
    "no ids": (lists("list", 4, None), ("column experts, row 4: no value", "drop the token")),
    "an id is missing": (lists("list", 4, [0, None, 2, 3]), ("column experts, row 4: a value is missing", "drop")),
    "list too short": (lists("list", 7, [0, 1, 2]), ("column experts, row 7: 3 ids, expected 4", "correct layers")),
    "layer order": (long_rows, ("column layer, row 6: each token needs its 2 layers", "sort the rows")),
    "steps go back": (back, ("column step, row 5: step goes back from 2 to 1", "sort the rows by step")),
    "no step column": (column("step", None), ("column step is missing", "ebsim trace convert")),
    "no experts column": (column("experts", None), ("column experts is missing", "ebsim trace convert")),
    "step as text": (column("step", pa.array(["0"] * 10)), ("column step has type string, expected an integer",)),
    "experts as text": (column("experts", pa.array(["0"] * 10)), ("column experts has type string", "convert")),
    "phase as number": (column("phase", pa.array([0] * 10)), ("column phase has type int64, expected text",)),
    "request missing": (
        column("request", pa.array([0] * 8 + [None, 0])), ("column request, row 8: no value", "drop the token"),
    ),
    "step too large": (
        column("step", pa.array([*range(9), 2**31])), ("column step, row 9: 2147483648 does not fit int32", "correct"),
    ),
    "gates too narrow": (
        column("gates", pa.array([b"0123"] * 10, pa.binary(4))), ("column gates is 4 bytes per row", "need 8"),
    ),
    "wrong byte width": (wrong_width, ("column experts is 4 bytes per row", "uint16 need 8", "correct the metadata")),
    "no metadata": (metadata(None), ("metadata key ebsim.trace is missing", "--experts and --top-k")),
    "broken metadata": (metadata(b'{"kind": "tok'), ("metadata key ebsim.trace: ", "ebsim trace convert")),
    "metadata lacks experts": (
        metadata(json.dumps({"kind": "tokens", "layers": [3, 5], "top_k": 2}).encode()), ("required field `experts`",),
    ),
    "mixed models": (mixed, ("b.parquet: mixed models: experts is 7 here and 8 in", "one model at a time")),
    "0 bytes": (bytes_of(lambda content: b""), ("file is empty (0 bytes)", "record it again")),
    "truncated": (bytes_of(lambda content: content[: len(content) // 2]), ("truncated", "copy or record it again")),
    "not Parquet": (bytes_of(lambda content: b"step,request\n0,0\n"), ("not a Parquet file", "ebsim trace convert")),
    "damaged row group": (damaged, ("damaged Parquet file", "copy or record it again")),
    "no rows": (no_rows, ("file has no rows", "record it again")),
    "folder without traces": (no_trace_inside, ("folder holds no .parquet file", "name a trace file")),
    "no such file": (lambda path: path, ("no such file", "check the path")),
    "count below 0": (counts, ("column counts, row 3, layer 5: -2 is not a count", "whole numbers")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_line_and_exit_2(tmp_path: Path, name: str) -> None:
    make, says = CASES[name]
    path = make(tmp_path / "t.parquet")
    done = ebsim_here("trace", "check", "-q", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"ebsim: error: {path}")
    for piece in says:
        assert piece in done.stderr


def test_the_trace_that_is_spoilt_here_is_good_before(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.parquet", good(), META, row_group=5)
    done = ebsim("trace", "check", "-q", path)
    assert (done.returncode, done.stderr) == (0, "") and "10 tokens, 5 steps" in unbroken(done.stdout)
