"""One Arrow record batch to one `TokenBatch`: column types, defaults, dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.errors import TraceError
from easybalance_sim.trace import layouts
from easybalance_sim.trace.schema import UNKNOWN_PHASE, TokenBatch, TraceMeta, phase_code


def require(schema: Any, meta: TraceMeta, where: str) -> None:
    """Raise `TraceError` unless the needed columns are there with a usable type."""
    for name in ("step", "request"):
        if name not in schema.names:
            raise TraceError(f"column {name} is missing", where=where, fix=layouts.CONVERT_HINT)
        if not pa.types.is_integer(schema.field(name).type):
            raise TraceError(
                f"column {name} has type {schema.field(name).type}, expected an integer",
                where=where,
                fix=layouts.CONVERT_HINT,
            )
    layouts.detect(schema, meta, where)


def batch_from(
    record: Any, layout: str, meta: TraceMeta, workloads: dict[str, int], where: str, first_row: int
) -> TokenBatch:
    """A `TokenBatch` of the record's tokens; `workloads` learns new names. `experts` is empty when not read."""
    per_token = layouts.rows_per_token(layout, meta)
    if layout == "long" and "layer" in record.schema.names:
        layouts.require_layer_order(np.asarray(record.column("layer")), meta, where, first_row)
    tokens = record.num_rows // per_token
    light = record.select([n for n in record.schema.names if n not in ("experts", "gates", "layer")])
    read = _Reader(light, per_token, where, first_row)
    experts: AnyArray = np.zeros((tokens, 0, 0), meta.dtype)
    if "experts" in record.schema.names:
        experts = layouts.expert_ids(record.column("experts"), layout, meta, where, first_row)
    gates = layouts.half_floats(record.column("gates"), meta) if "gates" in record.schema.names else None
    return TokenBatch(
        step=read.ints("step", np.int32, 0),
        request=read.ints("request", np.int64, -1),
        position=read.ints("position", np.int32, 0),
        phase=sealed(read.codes("phase", {}).astype(np.uint8)),
        source_rank=read.ints("source_rank", np.int16, -1),
        workload=sealed(read.codes("workload", workloads).astype(np.int16)),
        experts=experts,
        gates=gates,
        time_s=read.floats("time_s"),
        first_row=first_row // per_token,
    )


class _Reader:
    """Reads the light columns of one record, one row per token."""

    def __init__(self, record: Any, per_token: int, where: str, first_row: int) -> None:
        self._record, self._stride, self._where, self._first_row = record, per_token, where, first_row
        self._tokens = record.num_rows // per_token

    def ints(self, name: str, dtype: Any, default: int) -> AnyArray:
        if name not in self._record.schema.names:
            return sealed(np.full(self._tokens, default, dtype))
        values = self._column(name)
        info = np.iinfo(dtype)
        if len(values) and (values.min() < info.min or values.max() > info.max):
            row = self._first_row + int(np.flatnonzero((values < info.min) | (values > info.max))[0]) * self._stride
            raise TraceError(f"column {name}, row {row}: value does not fit {np.dtype(dtype).name}", where=self._where)
        return sealed(values.astype(dtype, copy=False))

    def floats(self, name: str) -> AnyArray | None:
        if name not in self._record.schema.names:
            return None
        return sealed(self._column(name).astype(np.float64, copy=False))

    def codes(self, name: str, known: dict[str, int]) -> AnyArray:
        """Codes of a string column: phases for `phase`, indices into `known` (which grows) otherwise."""
        default = UNKNOWN_PHASE if name == "phase" else 0
        if name not in self._record.schema.names:
            return np.full(self._tokens, default)
        column = self._record.column(name)
        if not pa.types.is_dictionary(column.type):
            column = pc.dictionary_encode(column.cast(pa.string()))
        texts = [str(text) for text in column.dictionary.to_pylist()]
        table = [phase_code(text) if name == "phase" else known.setdefault(text, len(known)) for text in texts]
        indices = np.asarray(column.indices.fill_null(len(texts)))[:: self._stride]
        codes: AnyArray = np.array([*table, default])[indices]
        return codes

    def _column(self, name: str) -> AnyArray:
        column = self._record.column(name)
        if column.null_count:
            row = self._first_row + int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise TraceError(f"column {name}, row {row}: no value", where=self._where, fix="drop the row")
        return np.asarray(column)[:: self._stride]
