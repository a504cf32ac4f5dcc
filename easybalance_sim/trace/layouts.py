"""The column layouts a token trace may come in, each turned into one [T, L, K] array of ids.

packed: `fixed_size_binary[L*K*itemsize]` (the format's own, zero-copy) · list: `list<int>` or `fixed_size_list<int>` of
L*K ids · long: one row per (token, layer) with K ids, a `layer` column, and tokens in trace order.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import SCORES, TraceMeta
from easybalance_sim.trace.validation import unknown_id

CONVERT_HINT = "rewrite with `ebsim trace convert`"


def detect(schema: Any, meta: TraceMeta, where: str) -> str:
    """Layout name of a file's schema: "packed", "list" or "long". Raises `TraceError` naming the column."""
    if "experts" not in schema.names:
        raise TraceError("column experts is missing", where=where, fix=CONVERT_HINT)
    kind = schema.field("experts").type
    if pa.types.is_fixed_size_binary(kind):
        _require_width("experts", kind, len(meta.layers) * meta.top_k, meta.dtype, meta, where)
        return "packed"
    if is_list(kind) and pa.types.is_integer(kind.value_type):
        return "long" if "layer" in schema.names else "list"
    raise TraceError(
        f"column experts has type {kind}, expected packed bytes or a list of ints", where=where, fix=CONVERT_HINT
    )


def require_gates(kind: Any, layout: str, meta: TraceMeta, where: str) -> None:
    """Raise `TraceError` unless gates of Arrow type `kind` are float16 packed like the ids, or a list of floats."""
    if pa.types.is_fixed_size_binary(kind):
        _require_width("gates", kind, values_per_row(layout, meta), "float16", meta, where)
    elif not (is_list(kind) and pa.types.is_floating(kind.value_type)):
        raise TraceError(
            f"column gates has type {kind}, expected packed float16 or a list of floats", where=where, fix=CONVERT_HINT
        )


def rows_per_token(layout: str, meta: TraceMeta) -> int:
    """File rows that make one token."""
    return len(meta.layers) if layout == "long" else 1


def values_per_row(layout: str, meta: TraceMeta) -> int:
    """Ids (or gates) in one file row."""
    return meta.top_k if layout == "long" else len(meta.layers) * meta.top_k


def expert_ids(column: Any, layout: str, meta: TraceMeta, where: str, first_row: int) -> AnyArray:
    """[T, L, K] ids in `meta.dtype` from the `experts` column of one record batch; packed input is not copied.

    first_row: file row of the first one, at a token's start. Raises `TraceError` with column and row for nulls, lists
    of another length and, in lists, ids that are not in 0..E-1.
    """
    shape = (-1, len(meta.layers), meta.top_k)
    if pa.types.is_fixed_size_binary(column.type):
        require_values("experts", column, where, first_row)
        return _packed(column, meta.dtype).reshape(shape)
    width = values_per_row(layout, meta)
    flat = flat_list("experts", column, width, where, first_row)
    if flat.size and (flat.min() < 0 or flat.max() >= meta.experts):
        bad = int(np.flatnonzero((flat < 0) | (flat >= meta.experts))[0])
        row = first_row + bad // width
        layer = row % len(meta.layers) if layout == "long" else bad % width // meta.top_k
        raise unknown_id(int(flat[bad]), row, meta.layers[layer], meta, where)
    return sealed(flat.astype(meta.dtype)).reshape(shape)


def require_layer_order(layers: AnyArray, meta: TraceMeta, where: str, first_row: int) -> None:
    """Raise `TraceError` unless long rows run through the metadata's layer ids once per token."""
    wanted = np.resize(np.array(meta.layers), len(layers))
    bad = np.flatnonzero(layers != wanted)
    if len(layers) % len(meta.layers) or len(bad):
        row = first_row + (int(bad[0]) if len(bad) else len(layers) - 1)
        raise TraceError(
            f"column layer, row {row}: each token needs its {len(meta.layers)} layers in the order of the metadata",
            where=where,
            fix="sort the rows by (step, token, layer) and keep tokens whole",
        )


def half_floats(column: Any, layout: str, meta: TraceMeta, where: str, first_row: int) -> AnyArray:
    """[T, L, K] float16 gates of one record batch; raises like `expert_ids`."""
    shape = (-1, len(meta.layers), meta.top_k)
    if pa.types.is_fixed_size_binary(column.type):
        require_values("gates", column, where, first_row)
        return _packed(column, "<f2").reshape(shape)
    flat = flat_list("gates", column, values_per_row(layout, meta), where, first_row)
    return sealed(flat.astype(np.float16)).reshape(shape)


def scores(record: Any, layout: str, meta: TraceMeta, where: str, first_row: int) -> dict[str, AnyArray]:
    """The score columns that a record batch holds: [T, L, E] `all_scores`, [T, L, M] `runner_up` and its scores,
    [T, L, K] `selection_scores`.

    Raises `TraceError` for types other than packed ones, other widths and nulls.
    """
    found = {}
    for name in SCORES:
        if name not in record.schema.names:
            continue
        column, dtype = record.column(name), _score_dtype(name, meta)
        whole = len(meta.layers) * np.dtype(dtype).itemsize
        width = column.type.byte_width if pa.types.is_fixed_size_binary(column.type) and layout == "packed" else 0
        fixed = {"all_scores": meta.experts, "selection_scores": meta.top_k}.get(name)
        fits = width % whole == 0 if fixed is None else width == whole * fixed
        if not width or not fits:
            raise TraceError(
                f"column {name} has type {column.type}, expected packed {np.dtype(dtype).name} of "
                f"{len(meta.layers)} layers",
                where=where,
                fix="leave the column out, or record it again",
            )
        require_values(name, column, where, first_row)
        found[name] = _packed(column, dtype).reshape(len(column), len(meta.layers), -1)
    return found


def _score_dtype(name: str, meta: TraceMeta) -> str:
    if name == "runner_up":
        return meta.dtype
    if name != "all_scores" or meta.all_scores is msgspec.UNSET:
        return "<f2"
    return "<u2" if meta.all_scores.dtype == "uint16" else "<f2"


def flat_list(name: str, column: Any, width: int, where: str, first_row: int) -> AnyArray:
    """The values of a list column, end to end; raises `TraceError` with the row for nulls and other lengths."""
    require_values(name, column, where, first_row)
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = np.diff(plain(column.offsets))
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        unit = "ids" if name == "experts" else name
        raise TraceError(
            f"column {name}, row {first_row + int(wrong[0])}: {int(lengths[wrong[0]])} {unit}, expected {width}",
            where=where,
            fix="correct layers, experts and top_k in the metadata, or the row",
        )
    values = column.flatten()
    if values.null_count:
        row = first_row + _first_null(values) // width
        raise TraceError(f"column {name}, row {row}: a value is missing in the list", where=where, fix="drop the token")
    return plain(values)


def plain(column: Any) -> AnyArray:
    """The numbers of an Arrow array without nulls, not copied.

    Through DLPack: Arrow's own ways to numpy import pandas, which takes longer than a small plan's reading.
    """
    array: AnyArray = np.from_dlpack(column)
    return array


def require_values(name: str, column: Any, where: str, first_row: int) -> None:
    """Raise `TraceError` with the first row in which the column holds nothing."""
    if column.null_count:
        raise TraceError(
            f"column {name}, row {first_row + _first_null(column)}: no value", where=where, fix="drop the token"
        )


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of the list types that are read."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _first_null(column: Any) -> int:
    return int(np.flatnonzero(np.asarray(column.is_null()))[0])


def _packed(column: Any, dtype: str) -> AnyArray:
    width = column.type.byte_width
    data: AnyArray = np.frombuffer(column.buffers()[1], np.uint8)
    start = column.offset * width
    return sealed(data[start : start + len(column) * width].view(dtype))


def _require_width(name: str, kind: Any, values: int, dtype: str, meta: TraceMeta, where: str) -> None:
    wanted = values * np.dtype(dtype).itemsize
    if kind.byte_width != wanted:
        raise TraceError(
            f"column {name} is {kind.byte_width} bytes per row, {len(meta.layers)} layers × top-{meta.top_k} as "
            f"{dtype} need {wanted}",
            where=where,
            fix="correct the metadata or " + CONVERT_HINT,
        )
