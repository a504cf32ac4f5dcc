"""Reads count traces: one row per (window, layer) with a list of E counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.errors import TraceError
from easybalance_sim.trace import layouts
from easybalance_sim.trace.columns import INTEGER, NUMBER, TEXT, Wanted, is_number, require_columns
from easybalance_sim.trace.files import open_parquet, reading
from easybalance_sim.trace.schema import NO_WORKLOAD, CountTrace, TraceMeta, phase_code

_MOST = 2**53
_COUNTS: Wanted = ("a list of counts", lambda kind: layouts.is_list(kind) and is_number(kind.value_type))
_TYPES = {
    "layer": INTEGER,
    "counts": _COUNTS,
    "tokens": NUMBER,
    "start_s": NUMBER,
    "span_s": NUMBER,
    "phase": TEXT,
    "workload": TEXT,
}


def read_count_trace(paths: Sequence[Path], meta: TraceMeta) -> CountTrace:
    """All windows of the files, in order; a second file's windows follow the first's.

    Raises `TraceError` naming file, column, row and layer.
    """
    workloads: dict[str, int] = {NO_WORKLOAD: 0}
    parts = []
    for path in paths:
        with reading(str(path)):
            parts.append(_read(path, meta, workloads))
    joined: dict[str, Any] = {name: frozen(np.concatenate([part[name] for part in parts])) for name in parts[0]}
    joined["window"] = frozen(np.arange(len(joined["tokens"])))
    return CountTrace(meta=meta, paths=tuple(str(path) for path in paths), workloads=tuple(workloads), **joined)


def _read(path: Path, meta: TraceMeta, workloads: dict[str, int]) -> dict[str, AnyArray]:
    where, layers = str(path), len(meta.layers)
    file = open_parquet(path)
    require_columns(file.schema_arrow, ("layer", "counts"), _TYPES, where)
    table = file.read()
    if table.num_rows == 0:
        raise TraceError("file has no rows", where=where, fix="record it again")
    layouts.require_layer_order(np.asarray(table.column("layer")), meta, where, 0)
    counts = _counts(table.column("counts"), meta, where)
    tokens = counts.reshape(-1, layers, meta.experts)
    first = table.take(pa.array(np.arange(0, table.num_rows, layers)))
    given = _numbers(first, "tokens", 0.0).astype(np.int64)
    assignments = tokens.sum(axis=(1, 2)) // (layers * meta.top_k)
    return {
        "tokens": tokens,
        "window": np.arange(len(tokens)),
        "start_s": _numbers(first, "start_s", 0.0),
        "span_s": _numbers(first, "span_s", 0.0),
        "phase": np.array([phase_code(text) for text in _texts(first, "phase")], np.uint8),
        "workload": np.array(
            [workloads.setdefault(text, len(workloads)) for text in _texts(first, "workload")], np.int16
        ),
        "batch_tokens": np.where(given > 0, given, assignments),
    }


def _counts(column: Any, meta: TraceMeta, where: str) -> AnyArray:
    flat = layouts.flat_list("counts", column.combine_chunks(), meta.experts, where, 0)
    bad = np.flatnonzero(~(flat >= 0) | (flat != np.floor(flat)) | (flat > _MOST))
    if len(bad):
        row = int(bad[0]) // meta.experts
        raise TraceError(
            f"column counts, row {row}, layer {meta.layers[row % len(meta.layers)]}: {flat[bad[0]]} is not a count",
            where=where,
            fix="counts are whole numbers from 0 to 2^53",
        )
    return flat.astype(np.int64)


def _numbers(table: Any, name: str, default: float) -> AnyArray:
    if name not in table.schema.names:
        return np.full(table.num_rows, default)
    return np.asarray(table.column(name).fill_null(default)).astype(np.float64)


def _texts(table: Any, name: str) -> list[str]:
    if name not in table.schema.names:
        return ["unknown" if name == "phase" else NO_WORKLOAD] * table.num_rows
    missing = "unknown" if name == "phase" else NO_WORKLOAD
    return [missing if text is None else str(text) for text in table.column(name).to_pylist()]
