"""Layouts by hand: which one a schema is, what ids come out, what is refused and in which row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace import layouts
from easybalance_sim.trace.schema import TraceMeta
from tests.trace_files import token_meta

META = token_meta(layers=(3, 5), experts=8, top_k=2)
WIDE = token_meta(layers=(3, 5), experts=300, top_k=2)
INT_LIST = pa.list_(pa.int64())


def schema(kind: Any, *more: str) -> Any:
    return pa.schema([("experts", kind), *((name, pa.int32()) for name in more)])


@pytest.mark.parametrize(
    ("kind", "more", "meta", "layout"),
    [
        (pa.binary(4), (), META, "packed"),
        (pa.binary(8), (), WIDE, "packed"),
        (INT_LIST, (), META, "list"),
        (pa.large_list(pa.uint8()), (), META, "list"),
        (pa.list_(pa.int16(), 4), (), META, "list"),
        (INT_LIST, ("layer",), META, "long"),
        (pa.list_(pa.uint16(), 2), ("layer",), WIDE, "long"),
    ],
)
def test_layout_of_a_schema(kind: Any, more: tuple[str, ...], meta: TraceMeta, layout: str) -> None:
    assert layouts.detect(schema(kind, *more), meta, "f") == layout
    assert layouts.rows_per_token(layout, meta) == (2 if layout == "long" else 1)
    assert layouts.values_per_row(layout, meta) == (2 if layout == "long" else 4)


@pytest.mark.parametrize(
    ("kind", "meta", "says"),
    [
        (pa.binary(4), WIDE, "column experts is 4 bytes per row, 2 layers × top-2 as uint16 need 8"),
        (pa.binary(), META, "column experts has type binary"),
        (pa.list_(pa.float32()), META, "expected packed bytes or a list of ints"),
        (pa.string(), META, "column experts has type string"),
        (pa.list_(pa.list_(pa.int8())), META, "column experts has type list"),
    ],
)
def test_other_types_are_refused(kind: Any, meta: TraceMeta, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        layouts.detect(schema(kind), meta, "f")


def test_no_experts_at_all() -> None:
    with pytest.raises(TraceError, match=r"^f: column experts is missing — rewrite"):
        layouts.detect(pa.schema([("step", pa.int32())]), META, "f")


def test_packed_ids_are_a_view_of_the_file_s_bytes() -> None:
    column = pa.array([bytes([0, 1, 2, 3]), bytes([4, 5, 6, 7]), bytes([7, 6, 5, 4])], pa.binary(4))
    ids = layouts.expert_ids(column.slice(1), "packed", META, "f", 0)
    assert ids.tolist() == [[[4, 5], [6, 7]], [[7, 6], [5, 4]]]
    assert ids.__array_interface__["data"][0] == column.buffers()[1].address + 4
    assert not ids.flags.writeable


def test_two_byte_ids_are_little_endian() -> None:
    column = pa.array([bytes([1, 1, 2, 0, 0, 0, 43, 1])], pa.binary(8))
    assert layouts.expert_ids(column, "packed", WIDE, "f", 0).tolist() == [[[257, 2], [0, 299]]]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.list_(pa.uint64()), pa.large_list(pa.int32()), pa.list_(pa.uint8(), 4)]
)
def test_lists_of_any_integer_also_sliced(kind: Any) -> None:
    column = pa.array([[0, 1, 2, 3], [4, 5, 6, 7]], kind)
    assert layouts.expert_ids(column.slice(1), "list", META, "f", 0).tolist() == [[[4, 5], [6, 7]]]


@pytest.mark.parametrize(
    ("rows", "layout", "says"),
    [
        ([[0, 1, 2, 3], None], "list", "column experts, row 11: no value"),
        ([[0, 1, 2, 3], [0, 1, None, 3]], "list", "column experts, row 11: a value is missing in the list"),
        ([[0, 1, 2, 3], [0, 1, 2]], "list", "column experts, row 11: 3 ids, expected 4"),
        ([[0, 1, 2, 3, 4], [0, 1, 2]], "list", "column experts, row 10: 5 ids, expected 4"),
        ([[0, 1, 2, 3], [0, 1, 2, -1]], "list", r"row 11, layer 5: id -1 is not in 0\.\.7"),
        ([[0, 1, 2, 3], [8, 1, 2, 3]], "list", r"row 11, layer 3: id 8 is not in 0\.\.7"),
        ([[0, 1, 2, 3], [0, 1, 1000, 3]], "list", r"row 11, layer 5: id 1000 is not in 0\.\.7"),
        ([[0, 1], [2, 9], [0, 1], [2, 3]], "long", "row 11, layer 5: id 9"),
        ([[0, 1], [2, 3], [-5, 1], [2, 3]], "long", "row 12, layer 3: id -5"),
        ([[0, 1], [2, 3, 4]], "long", "column experts, row 11: 3 ids, expected 2"),
    ],
)
def test_bad_lists_name_row_and_layer(rows: Any, layout: str, says: str) -> None:
    with pytest.raises(TraceError, match=says) as caught:
        layouts.expert_ids(pa.array(rows, INT_LIST), layout, META, "f", 10)
    assert caught.value.fix and caught.value.where == "f"


def test_a_packed_value_that_is_missing() -> None:
    with pytest.raises(TraceError, match="column experts, row 8: no value"):
        layouts.expert_ids(pa.array([b"0123", None], pa.binary(4)), "packed", META, "f", 7)


@pytest.mark.parametrize(
    ("layers", "row"),
    [([3, 5, 5, 3], 102), ([3, 5, 3], 102), ([5, 3], 100), ([3, 5, 3, 9], 103), ([3, 3, 5, 5], 101)],
)
def test_long_rows_out_of_layer_order(layers: list[int], row: int) -> None:
    layouts.require_layer_order(np.array([3, 5, 3, 5]), META, "f", 100)
    with pytest.raises(TraceError, match=f"column layer, row {row}: each token needs its 2 layers"):
        layouts.require_layer_order(np.array(layers), META, "f", 100)


@pytest.mark.parametrize(
    ("kind", "layout"),
    [(pa.binary(8), "packed"), (pa.list_(pa.float16()), "list"), (pa.list_(pa.float64(), 4), "packed")],
)
def test_gates_in_any_layout(kind: Any, layout: str) -> None:
    values = np.array([[0.5, 0.25, 0.125, 0.0], [1, 2, 3, 4]], np.float16)
    layouts.require_gates(kind, layout, META, "f")
    column = pa.array([row.tobytes() for row in values] if pa.types.is_fixed_size_binary(kind) else list(values), kind)
    gates = layouts.half_floats(column, layout, META, "f", 0)
    assert gates.dtype == np.float16 and not gates.flags.writeable
    np.testing.assert_array_equal(gates, values.reshape(2, 2, 2))


@pytest.mark.parametrize(
    ("kind", "layout", "says"),
    [
        (pa.binary(4), "packed", "column gates is 4 bytes per row"),
        (pa.binary(8), "long", "as float16 need 4"),
        (pa.list_(pa.int32()), "list", "column gates has type list"),
        (pa.float16(), "list", "expected packed float16 or a list of floats"),
    ],
)
def test_gates_of_another_type(kind: Any, layout: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        layouts.require_gates(kind, layout, META, "f")


def test_gates_of_another_length() -> None:
    with pytest.raises(TraceError, match="column gates, row 1: 3 gates, expected 4"):
        layouts.half_floats(pa.array([[0.0] * 4, [0.0] * 3]), "list", META, "f", 0)
