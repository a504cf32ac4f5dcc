"""Writes traces of format version 1, whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from easybalance_sim.arrays import AnyArray
from easybalance_sim.files import replacing
from easybalance_sim.trace.schema import METADATA_KEY, PHASES, SCORES, CountTrace, TokenBatch, TraceMeta

ROW_GROUP_TOKENS = 32768
ROW_GROUP_WINDOWS = 64


class TokenTraceWriter:
    """Appends `TokenBatch`es to one Parquet file; rows must come in step order.

    workloads: the names that batches index; may grow meanwhile. Optional columns (`gates`, `time_s`, scores) are
    written when the first batch has them.
    """

    def __init__(self, path: Path, meta: TraceMeta, workloads: Sequence[str], level: int) -> None:
        self._path, self._meta, self._workloads, self._level = path, meta, workloads, level
        self._writer: Any = None

    def append(self, batch: TokenBatch) -> None:
        """Write `batch` as one or more row groups."""
        table = self._table(batch)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                table.schema,
                compression="zstd",
                compression_level=self._level,
                use_dictionary=["phase", "workload"],
                write_page_checksum=True,
            )
        self._writer.write_table(table, row_group_size=ROW_GROUP_TOKENS)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()

    def _table(self, batch: TokenBatch) -> Any:
        columns: dict[str, Any] = {
            "step": pa.array(batch.step, pa.int32()),
            "request": pa.array(batch.request, pa.int64()),
            "position": pa.array(batch.position, pa.int32()),
            "phase": _dictionary(batch.phase, PHASES),
            "source_rank": pa.array(batch.source_rank, pa.int16()),
            "workload": _dictionary(batch.workload, self._workloads),
            "experts": packed(batch.experts.astype(self._meta.dtype, copy=False)),
        }
        if batch.time_s is not None:
            columns["time_s"] = pa.array(batch.time_s, pa.float64())
        if batch.gates is not None:
            columns["gates"] = packed(batch.gates.astype("<f2", copy=False))
        for name in SCORES:
            if (values := getattr(batch, name)) is not None:
                columns[name] = packed(values)
        return pa.table(columns).replace_schema_metadata({METADATA_KEY: self._meta.encode()})


@contextlib.contextmanager
def token_trace_writer(
    path: Path, meta: TraceMeta, workloads: Sequence[str], *, level: int = 9
) -> Iterator[TokenTraceWriter]:
    """A `TokenTraceWriter` whose file appears at `path` only when the block ends without an exception."""
    with replacing(path) as temporary:
        writer = TokenTraceWriter(temporary, meta, workloads, level)
        try:
            yield writer
        finally:
            writer.close()


class CountTraceWriter:
    """Appends consecutive parts of one count trace to a Parquet file; all have its metadata and workload names."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def append(self, part: CountTrace) -> None:
        """Write one row per (window, layer)."""
        table = _count_table(part)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema, compression="zstd", write_page_checksum=True)
        self._writer.write_table(table, row_group_size=len(part.meta.layers) * ROW_GROUP_WINDOWS)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


@contextlib.contextmanager
def count_trace_writer(path: Path) -> Iterator[CountTraceWriter]:
    """A `CountTraceWriter` whose file appears at `path` only when the block ends without an exception."""
    with replacing(path) as temporary:
        writer = CountTraceWriter(temporary)
        try:
            yield writer
        finally:
            writer.close()


def write_count_trace(path: Path, trace: CountTrace) -> None:
    """Write a whole count trace."""
    with count_trace_writer(path) as writer:
        writer.append(trace)


def _count_table(trace: CountTrace) -> Any:
    windows, layers, experts = trace.tokens.shape
    flat = trace.tokens.reshape(windows * layers, experts)
    offsets = np.arange(windows * layers + 1, dtype=np.int32) * experts
    columns = {
        "window": pa.array(np.repeat(trace.window, layers), pa.int32()),
        "start_s": pa.array(np.repeat(trace.start_s, layers), pa.float64()),
        "span_s": pa.array(np.repeat(trace.span_s, layers), pa.float64()),
        "phase": _dictionary(np.repeat(trace.phase, layers), PHASES),
        "workload": _dictionary(np.repeat(trace.workload, layers), trace.workloads),
        "layer": pa.array(np.tile(np.array(trace.meta.layers), windows), pa.int32()),
        "tokens": pa.array(np.repeat(trace.batch_tokens, layers), pa.int64()),
        "counts": pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel(), pa.int64())),
    }
    return pa.table(columns).replace_schema_metadata({METADATA_KEY: trace.meta.encode()})


def packed(values: AnyArray) -> Any:
    """[T, …] numbers as one fixed-size-binary value per token, little-endian, row-major."""
    rows = np.ascontiguousarray(values)
    width = rows[0].nbytes if len(rows) else int(np.prod(rows.shape[1:])) * rows.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows)])


def _dictionary(codes: AnyArray, names: Sequence[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int16)), list(names))
