"""Small traces for tests: random tokens, written in every layout that is read, and read back as plain arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from easybalance_sim.arrays import AnyArray
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.scan import TraceScan, scan_run
from easybalance_sim.trace.scan import joined as joined_scan
from easybalance_sim.trace.schema import METADATA_KEY, NO_WORKLOAD, PHASES, CountTrace, TokenBatch, TraceMeta, id_dtype
from easybalance_sim.trace.writer import packed

LAYOUTS = ("packed", "list", "large_list", "fixed_list", "long", "long_fixed")
INTS = {"step": "int32", "request": "int64", "position": "int32", "source_rank": "int16"}
DEFAULTS = {"position": 0, "source_rank": -1, "phase": "unknown", "workload": NO_WORKLOAD}

Columns = dict[str, AnyArray]


def token_meta(layers: Sequence[int] = (3, 5), experts: int = 8, top_k: int = 2, **more: Any) -> TraceMeta:
    known = {"kind": "tokens", "dtype": id_dtype(experts)} | more
    return TraceMeta(layers=tuple(layers), experts=experts, top_k=top_k, **known)


def random_ids(rng: np.random.Generator, tokens: int, meta: TraceMeta) -> AnyArray:
    """[T, L, K] ids, no expert twice in one top-k."""
    drawn = rng.random((tokens, len(meta.layers), meta.experts)).argsort(axis=2)[:, :, : meta.top_k]
    return drawn.astype(meta.dtype)


def random_columns(rng: np.random.Generator, steps: Sequence[int], meta: TraceMeta) -> Columns:
    """Every column of a trace with the given (rising) steps, texts as str."""
    tokens = len(steps)
    return {
        "step": np.array(steps, np.int32),
        "request": rng.integers(0, max(2, tokens // 2), tokens),
        "position": rng.integers(0, 500, tokens).astype(np.int32),
        "phase": rng.choice(PHASES[:2], tokens),
        "source_rank": rng.integers(0, 8, tokens).astype(np.int16),
        "workload": rng.choice(["chat", "code", "übung"], tokens),
        "time_s": np.sort(rng.random(tokens)),
        "experts": random_ids(rng, tokens, meta),
        "gates": rng.random((tokens, len(meta.layers), meta.top_k)).astype(np.float16),
    }


def arrow_table(columns: Columns, meta: TraceMeta | None, layout: str = "packed", *, plain_texts: bool = False) -> Any:
    """The columns as an Arrow table in one of `LAYOUTS`; no metadata when `meta` is None."""
    ids = columns["experts"]
    repeat = ids.shape[1] if layout.startswith("long") else 1
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if name in ("experts", "gates"):
            arrays[name] = _layer_values(values, layout)
        elif name in ("phase", "workload"):
            texts = pa.array(np.repeat(values, repeat).tolist(), pa.string())
            arrays[name] = texts if plain_texts else texts.dictionary_encode()
        else:
            arrays[name] = pa.array(np.repeat(values, repeat))
    if layout.startswith("long"):
        layers = meta.layers if meta else range(repeat)
        arrays["layer"] = pa.array(np.tile(np.array(layers, np.int32), len(ids)))
    return pa.table(arrays).replace_schema_metadata({METADATA_KEY: meta.encode()} if meta else {})


def write_trace(
    path: Path,
    columns: Columns,
    meta: TraceMeta | None,
    layout: str = "packed",
    *,
    plain_texts: bool = False,
    row_group: int | None = None,
) -> Path:
    pq.write_table(arrow_table(columns, meta, layout, plain_texts=plain_texts), path, row_group_size=row_group)
    return path


def token_trace(*paths: Path) -> TokenTrace:
    trace = open_trace(paths)
    assert isinstance(trace, TokenTrace)
    return trace


def count_trace(*paths: Path) -> CountTrace:
    trace = open_trace(paths)
    assert isinstance(trace, CountTrace)
    return trace


def scanned(batches: Iterable[TokenBatch], workloads: int = 4) -> TraceScan:
    """The scan of tokens that lie in no file; workloads: codes that may occur."""
    names = {NO_WORKLOAD: 0} | {f"w{code}": code for code in range(1, workloads)}
    return joined_scan([scan_run(batches, names)], [])[0]


def read_columns(trace: TokenTrace, *, gates: bool = False) -> Columns:
    """All tokens of a trace as one array per column, texts as str."""
    parts = list(trace.batches(gates=gates))
    names = [*INTS, "experts", "time_s", "gates"]
    read = {name: [getattr(part, name) for part in parts] for name in names if getattr(parts[0], name) is not None}
    columns = {name: np.concatenate(arrays) for name, arrays in read.items()}
    columns["phase"] = np.array(PHASES)[np.concatenate([part.phase for part in parts])]
    columns["workload"] = np.array(trace.workloads)[np.concatenate([part.workload for part in parts])]
    return columns


def with_defaults(columns: Columns) -> Columns:
    """What a reader makes of the columns: those that are missing filled in."""
    tokens = len(columns["step"])
    return {name: np.full(tokens, value) for name, value in DEFAULTS.items()} | columns


def require_equal(found: Columns, wanted: Columns) -> None:
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def take(columns: Columns, rows: Any) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _layer_values(values: AnyArray, layout: str) -> Any:
    """[T, L, K] ids or gates as an Arrow column."""
    if layout == "packed":
        return packed(values)
    rows = values.reshape(-1, values.shape[2]) if layout.startswith("long") else values.reshape(len(values), -1)
    inner = pa.array(rows.ravel())
    if layout in ("fixed_list", "long_fixed"):
        return pa.FixedSizeListArray.from_arrays(inner, rows.shape[1])
    offsets = np.arange(len(rows) + 1) * rows.shape[1]
    if layout == "large_list":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), inner)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner)
