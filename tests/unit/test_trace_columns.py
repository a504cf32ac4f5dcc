"""The light columns: types, defaults, dictionaries, what is out of range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace import columns
from easybalance_sim.trace.schema import DECODE, PREFILL, UNKNOWN_PHASE, TokenBatch
from tests.trace_files import token_meta

META = token_meta(layers=(3, 5), experts=8, top_k=2)


def record(**values: Any) -> Any:
    rows = len(next(iter(values.values())))
    known = {"step": pa.array([0] * rows, pa.int32()), "request": pa.array(range(rows))}
    return pa.record_batch(known | {name: pa.array(column) for name, column in values.items()})


def batch(workloads: dict[str, int] | None = None, **values: Any) -> TokenBatch:
    names = {"(none)": 0} if workloads is None else workloads
    return columns.batch_from(record(**values), "packed", META, names, "f", 20)


def test_missing_columns_have_defaults() -> None:
    got = batch(step=pa.array([4, 4], pa.int64()))
    assert got.step.tolist() == [4, 4] and got.step.dtype == np.int32
    assert got.position.tolist() == [0, 0] and got.source_rank.tolist() == [-1, -1]
    assert got.phase.tolist() == [UNKNOWN_PHASE] * 2 and got.workload.tolist() == [0, 0]
    assert got.time_s is None and got.gates is None and got.experts.shape == (2, 0, 0)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_plain_or_as_a_dictionary(kind: Any) -> None:
    known = {"(none)": 0, "code": 1}
    got = batch(
        known,
        phase=pa.array(["decode", None, "prefill", "warmup"], kind),
        workload=pa.array(["chat", "code", None, "chat"], kind),
    )
    assert got.phase.tolist() == [DECODE, UNKNOWN_PHASE, PREFILL, UNKNOWN_PHASE]
    assert got.workload.tolist() == [2, 1, 0, 2]
    assert known == {"(none)": 0, "code": 1, "chat": 2}


def test_a_full_int8_dictionary_with_a_missing_value() -> None:
    names = [f"tenant-{i}" for i in range(127)]
    column = pa.DictionaryArray.from_arrays(pa.array([126, None], pa.int8()), names)
    assert batch(workload=column).workload.tolist() == [127, 0]


def test_a_missing_value_inside_the_dictionary() -> None:
    known = {"(none)": 0}
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    assert batch(known, workload=column).workload.tolist() == [1, 0]
    assert known == {"(none)": 0, "a": 1}


def test_a_column_without_any_value() -> None:
    assert batch(workload=pa.nulls(2)).workload.tolist() == [0, 0]


def test_too_many_workloads() -> None:
    with pytest.raises(TraceError, match="column workload has more than 32768 names"):
        batch(workload=pa.array([f"w{i}" for i in range(32768)]))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"step": pa.array([0, 2**40])}, "column step, row 21: 1099511627776 does not fit int32"),
        ({"source_rank": pa.array([0, 0, -40000])}, "column source_rank, row 22: -40000 does not fit int16"),
        ({"request": pa.array([0, 2**64 - 1], pa.uint64())}, "column request, row 21: 18446744073709551615"),
        ({"position": pa.array([1, None])}, "column position, row 21: no value"),
        ({"time_s": pa.array([0.0, float("nan")])}, "column time_s, row 21: nan is not a time"),
        ({"time_s": pa.array([None, 1.0])}, "column time_s, row 20: no value"),
    ],
)
def test_values_out_of_range_name_column_and_row(values: dict[str, Any], says: str) -> None:
    with pytest.raises(TraceError, match=says) as caught:
        batch(**values)
    assert caught.value.fix and caught.value.where == "f"


def test_long_rows_are_read_once_per_token() -> None:
    rows = record(
        step=pa.array([7, 7, 8, 8], pa.int32()),
        layer=[3, 5, 3, 5],
        experts=pa.array([[0, 1], [2, 3], [4, 5], [6, 7]]),
        workload=["a", "a", "b", "b"],
    )
    got = columns.batch_from(rows, "long", META, {"(none)": 0}, "f", 40)
    assert got.step.tolist() == [7, 8] and got.request.tolist() == [0, 2] and got.workload.tolist() == [1, 2]
    assert got.experts.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert got.first_row == 20 and got.step.flags.c_contiguous


def test_errors_in_long_rows_name_the_row_of_the_file() -> None:
    rows = record(source_rank=pa.array([0, 0, 99999, 99999]), layer=[3, 5, 3, 5])
    with pytest.raises(TraceError, match="column source_rank, row 42: 99999"):
        columns.batch_from(rows, "long", META, {}, "f", 40)


SCHEMA = {"step": pa.int32(), "request": pa.int64(), "experts": pa.binary(4)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"step": None}, "column step is missing"),
        ({"request": None}, "column request is missing"),
        ({"experts": None}, "column experts is missing"),
        ({"step": pa.float64()}, "column step has type double, expected an integer"),
        ({"request": pa.string()}, "column request has type string, expected an integer"),
        ({"position": pa.string()}, "column position has type string, expected an integer"),
        ({"source_rank": pa.float32()}, "column source_rank has type float, expected an integer"),
        ({"layer": pa.string()}, "column layer has type string, expected an integer"),
        ({"time_s": pa.timestamp("us")}, "column time_s has type timestamp.*expected a number"),
        ({"phase": pa.int8()}, "column phase has type int8, expected text"),
        ({"workload": pa.dictionary(pa.int8(), pa.int64())}, "column workload has type dictionary.*expected text"),
        ({"gates": pa.binary(4)}, "column gates is 4 bytes"),
    ],
)
def test_schemas_that_cannot_be_read(changes: dict[str, Any], says: str) -> None:
    fields = SCHEMA | changes
    schema = pa.schema([(name, kind) for name, kind in fields.items() if kind is not None])
    with pytest.raises(TraceError, match=says) as caught:
        columns.require(schema, META, "f")
    assert caught.value.fix and caught.value.where == "f"
