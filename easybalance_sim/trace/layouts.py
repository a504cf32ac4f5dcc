"""The column layouts a token trace may come in, each turned into one [T, L, K] array of ids.

packed: `fixed_size_binary[L*K*itemsize]` (the format's own, zero-copy) · list: `list<int>` or `fixed_size_list<int>` of
L*K ids · long: one row per (token, layer) with K ids, a `layer` column, and tokens in trace order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import TraceMeta

CONVERT_HINT = "rewrite with `ebsim trace convert`"


def detect(schema: Any, meta: TraceMeta, where: str) -> str:
    """Layout name of a file's schema: "packed", "list" or "long". Raises `TraceError` naming the column."""
    if "experts" not in schema.names:
        raise TraceError("column experts is missing", where=where, fix=CONVERT_HINT)
    kind = schema.field("experts").type
    if pa.types.is_fixed_size_binary(kind):
        wanted = len(meta.layers) * meta.top_k * np.dtype(meta.dtype).itemsize
        if kind.byte_width != wanted:
            raise TraceError(
                f"column experts is {kind.byte_width} bytes per token, {len(meta.layers)} layers × top-{meta.top_k} × "
                f"{meta.dtype} are {wanted}",
                where=where,
                fix="correct the metadata or " + CONVERT_HINT,
            )
        return "packed"
    if _is_list(kind) and pa.types.is_integer(kind.value_type):
        return "long" if "layer" in schema.names else "list"
    raise TraceError(
        f"column experts has type {kind}, expected packed bytes or a list of ints", where=where, fix=CONVERT_HINT
    )


def rows_per_token(layout: str, meta: TraceMeta) -> int:
    """File rows that make one token."""
    return len(meta.layers) if layout == "long" else 1


def expert_ids(column: Any, layout: str, meta: TraceMeta, where: str, first_row: int) -> AnyArray:
    """[T, L, K] ids in `meta.dtype` from the `experts` column of one record batch; packed input is not copied.

    Raises `TraceError` with column and row for nulls, lists of another length and ids that the dtype cannot hold.
    """
    if column.null_count:
        row = first_row + int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise TraceError(f"column experts, row {row}: no value", where=where, fix="drop the row")
    shape = (-1, len(meta.layers), meta.top_k)
    if layout == "packed":
        return _packed(column, meta.dtype).reshape(shape)
    flat = _flat_list(column, meta.top_k if layout == "long" else len(meta.layers) * meta.top_k, where, first_row)
    limit = np.iinfo(meta.dtype).max
    if flat.size and (flat.min() < 0 or flat.max() > limit):
        bad = int(np.flatnonzero((flat < 0) | (flat > limit))[0])
        width = meta.top_k if layout == "long" else len(meta.layers) * meta.top_k
        layer = meta.layers[(bad % width) // meta.top_k] if layout == "list" else "of that row"
        raise TraceError(
            f"column experts, row {first_row + bad // width}, layer {layer}: id {int(flat[bad])} is not in "
            f"0..{meta.experts - 1}",
            where=where,
            fix="correct the ids or the number of experts in the metadata",
        )
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


def half_floats(column: Any, meta: TraceMeta) -> AnyArray | None:
    """[T, L, K] float16 gates from a packed or list column of float16."""
    if pa.types.is_fixed_size_binary(column.type):
        return _packed(column, "<f2").reshape(-1, len(meta.layers), meta.top_k)
    if _is_list(column.type):
        flat = column.flatten().to_numpy(zero_copy_only=False)
        gates: AnyArray = flat.astype(np.float16).reshape(-1, len(meta.layers), meta.top_k)
        return gates
    return None


def _packed(column: Any, dtype: str) -> AnyArray:
    width = column.type.byte_width
    data: AnyArray = np.frombuffer(column.buffers()[1], np.uint8)
    start = column.offset * width
    return data[start : start + len(column) * width].view(dtype)


def _flat_list(column: Any, width: int, where: str, first_row: int) -> AnyArray:
    flat: AnyArray = column.flatten().to_numpy(zero_copy_only=False)
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.full(len(column), column.type.list_size)
    else:
        lengths = np.diff(np.asarray(column.offsets))
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        raise TraceError(
            f"column experts, row {first_row + int(wrong[0])}: {int(lengths[wrong[0]])} ids, expected {width}",
            where=where,
            fix="correct layers and top_k in the metadata, or the row",
        )
    return flat


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
