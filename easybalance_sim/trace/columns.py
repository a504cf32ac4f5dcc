"""One Arrow record batch to one `TokenBatch`: column types, defaults, dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.errors import TraceError
from easybalance_sim.trace import layouts
from easybalance_sim.trace.schema import SCORES, UNKNOWN_PHASE, TokenBatch, TraceMeta, phase_code

Wanted = tuple[str, Callable[[Any], bool]]


def is_number(kind: Any) -> bool:
    """Integers and floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_text(kind: Any) -> bool:
    """Texts, plain or as a dictionary; a column without any value has no type of its own and passes."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))


INTEGER: Wanted = ("an integer", pa.types.is_integer)
NUMBER: Wanted = ("a number", is_number)
TEXT: Wanted = ("text", is_text)
_NEEDED = ("step", "request")
_TYPES = {
    "step": INTEGER,
    "request": INTEGER,
    "position": INTEGER,
    "source_rank": INTEGER,
    "layer": INTEGER,
    "time_s": NUMBER,
    "phase": TEXT,
    "workload": TEXT,
}


def require(schema: Any, meta: TraceMeta, where: str) -> None:
    """Raise `TraceError` unless the needed columns are there and every known one has a usable type."""
    require_columns(schema, _NEEDED, _TYPES, where)
    layout = layouts.detect(schema, meta, where)
    if "gates" in schema.names:
        layouts.require_gates(schema.field("gates").type, layout, meta, where)


def require_columns(schema: Any, needed: tuple[str, ...], types: Mapping[str, Wanted], where: str) -> None:
    """Raise `TraceError` for a needed column that is missing, or one of `types` that is there with another type."""
    for name in needed:
        if name not in schema.names:
            raise TraceError(f"column {name} is missing", where=where, fix=layouts.CONVERT_HINT)
    for name, (wanted, fits) in types.items():
        if name in schema.names and not fits(schema.field(name).type):
            raise TraceError(
                f"column {name} has type {schema.field(name).type}, expected {wanted}",
                where=where,
                fix=layouts.CONVERT_HINT,
            )


def batch_from(
    record: Any, layout: str, meta: TraceMeta, workloads: dict[str, int], where: str, first_row: int
) -> TokenBatch:
    """A `TokenBatch` of the record's tokens; `workloads` learns new names. `experts` is empty when not read."""
    per_token = layouts.rows_per_token(layout, meta)
    if layout == "long":
        layouts.require_layer_order(layouts.plain(record.column("layer")), meta, where, first_row)
    tokens = record.num_rows // per_token
    light = record.select([n for n in record.schema.names if n not in ("experts", "gates", "layer", *SCORES)])
    read = _Reader(light, per_token, where, first_row)
    experts: AnyArray = sealed(np.zeros((tokens, 0, 0), meta.dtype))
    if "experts" in record.schema.names:
        experts = layouts.expert_ids(record.column("experts"), layout, meta, where, first_row)
    gates = None
    if "gates" in record.schema.names:
        gates = layouts.half_floats(record.column("gates"), layout, meta, where, first_row)
    return TokenBatch(
        step=read.ints("step", np.int32, 0),
        request=read.ints("request", np.int64, -1),
        position=read.ints("position", np.int32, 0),
        phase=sealed(read.codes("phase", {}).astype(np.uint8)),
        source_rank=read.ints("source_rank", np.int16, -1),
        workload=sealed(read.codes("workload", workloads).astype(np.int16)),
        experts=experts,
        gates=gates,
        time_s=read.seconds("time_s"),
        **layouts.scores(record, layout, meta, where, first_row),
        first_row=first_row // per_token,
    )


def workload_code(name: str, known: dict[str, int], where: str = "") -> int:
    """The code of a workload; `known` learns a new name. Raises `TraceError` when there are too many."""
    code = known.setdefault(name, len(known))
    if code > np.iinfo(np.int16).max:
        raise TraceError(
            f"column workload has more than {code} names", where=where, fix="name classes, not single requests"
        )
    return code


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
            bad = (values < info.min) | (values > info.max)
            self._refuse(name, values, bad, f"does not fit {np.dtype(dtype).name}")
        return sealed(np.ascontiguousarray(values, dtype))

    def seconds(self, name: str) -> AnyArray | None:
        if name not in self._record.schema.names:
            return None
        values = np.ascontiguousarray(self._column(name), np.float64)
        if not np.isfinite(values).all():
            self._refuse(name, values, ~np.isfinite(values), "is not a time")
        return sealed(values)

    def codes(self, name: str, known: dict[str, int]) -> AnyArray:
        """Codes of a string column: phases for `phase`, indices into `known` (which grows) otherwise."""
        default = UNKNOWN_PHASE if name == "phase" else 0
        if name not in self._record.schema.names:
            return np.full(self._tokens, default)
        column = self._record.column(name)
        if not pa.types.is_dictionary(column.type):
            column = pc.dictionary_encode(column.cast(pa.string()))
        table = [default if text is None else self._code(name, text, known) for text in column.dictionary.to_pylist()]
        indices = column.indices.cast(pa.int64())
        if indices.null_count:
            indices = indices.fill_null(len(table))
        codes: AnyArray = np.array([*table, default])[layouts.plain(indices)[:: self._stride]]
        return codes

    def _code(self, name: str, text: str, known: dict[str, int]) -> int:
        return phase_code(text) if name == "phase" else workload_code(text, known, self._where)

    def _column(self, name: str) -> AnyArray:
        column = self._record.column(name)
        layouts.require_values(name, column, self._where, self._first_row)
        return layouts.plain(column)[:: self._stride]

    def _refuse(self, name: str, values: AnyArray, bad: AnyArray, problem: str) -> NoReturn:
        index = int(np.flatnonzero(bad)[0])
        row = self._first_row + index * self._stride
        raise TraceError(
            f"column {name}, row {row}: {values[index]} {problem}", where=self._where, fix="correct or drop the row"
        )
