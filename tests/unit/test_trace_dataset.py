"""A token trace as a stream: whole steps, several files, faults with the row of the file they are in."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace import source
from easybalance_sim.trace.dataset import open_trace
from easybalance_sim.trace.files import LayoutHints
from easybalance_sim.trace.schema import PHASES, CountTrace
from easybalance_sim.trace.writer import token_trace_writer
from tests.trace_files import (
    LAYOUTS,
    Columns,
    random_columns,
    read_columns,
    require_equal,
    take,
    token_meta,
    token_trace,
    write_trace,
)

META = token_meta(layers=(3, 5), experts=8, top_k=2)
STEPS = [0, 1, 1, 1, 2, 2, 4, 4, 4, 4, 4, 9]


def columns(seed: int = 0, steps: list[int] = STEPS) -> Columns:
    return random_columns(np.random.default_rng(seed), steps, META)


def test_steps_longer_than_a_batch_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_TOKENS", 2)
    trace = token_trace(write_trace(tmp_path / "t.parquet", columns(), META, row_group=3))
    steps = [batch.step.tolist() for batch in trace.batches()]
    assert list(itertools.chain(*steps)) == STEPS
    assert [4] * 5 in [[step for step in part if step == 4] for part in steps]
    assert [batch.first_row for batch in trace.batches()] == np.cumsum([0, *map(len, steps)])[:-1].tolist()


def test_a_trace_of_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_TOKENS", 4)
    trace = token_trace(write_trace(tmp_path / "t.parquet", columns(steps=[7] * 11), META))
    assert [batch.tokens for batch in trace.batches()] == [11]


def test_gates_and_times_only_when_every_file_has_them(tmp_path: Path) -> None:
    whole = columns()
    bare = {name: values for name, values in columns(1).items() if name not in ("gates", "time_s")}
    paths = [write_trace(tmp_path / f"{i}.parquet", part, META) for i, part in enumerate((whole, bare))]
    trace = token_trace(*paths)
    assert not trace.scan().has_time
    assert all(batch.time_s is None and batch.gates is None for batch in trace.batches(gates=True))
    assert token_trace(paths[0]).scan().has_time
    read = read_columns(token_trace(paths[0]), gates=True)
    assert read["gates"].dtype == np.float16
    assert "gates" not in read_columns(token_trace(paths[0]))
    assert "gates" not in read_columns(token_trace(paths[1]), gates=True)


def test_a_second_recording_is_numbered_on(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path / f"{i}.parquet", columns(i), META) for i in range(3)]
    read = read_columns(token_trace(*paths))
    assert read["step"].tolist() == [*STEPS, *(s + 10 for s in STEPS), *(s + 20 for s in STEPS)]
    requests = [set(read["request"][part].tolist()) for part in np.split(np.arange(36), 3)]
    assert not (requests[0] & requests[1] or requests[1] & requests[2] or requests[0] & requests[2])


@pytest.mark.parametrize(("begins_s", "shift_s"), [(0.0, 2.5), (0.5, 2.0), (100.0, 0.0)])
def test_the_clock_of_a_second_recording_goes_on(tmp_path: Path, begins_s: float, shift_s: float) -> None:
    """Recorders count from their own start: taken as they are, windows of two recordings would be one."""
    times = np.linspace(0.0, 2.5, len(STEPS))
    paths = [
        write_trace(tmp_path / f"{i}.parquet", columns(i) | {"time_s": times + base}, META)
        for i, base in enumerate((0.0, begins_s))
    ]
    found = read_columns(token_trace(*paths))["time_s"]
    np.testing.assert_allclose(found, [*times, *(times + begins_s + shift_s)])


def test_the_clock_of_a_recording_in_two_files_is_left_alone(tmp_path: Path) -> None:
    whole = columns() | {"time_s": np.linspace(7.0, 9.0, len(STEPS))}
    parts = (slice(0, 6), slice(6, None))
    paths = [write_trace(tmp_path / f"{i}.parquet", take(whole, part), META) for i, part in enumerate(parts)]
    np.testing.assert_array_equal(read_columns(token_trace(*paths))["time_s"], whole["time_s"])


def test_a_file_that_goes_on_is_the_same_recording(tmp_path: Path) -> None:
    whole = columns()
    paths = [
        write_trace(tmp_path / f"{i}.parquet", take(whole, part), META)
        for i, part in enumerate((slice(0, 6), slice(6, None)))
    ]
    require_equal(read_columns(token_trace(*paths), gates=True), whole)


def test_files_of_another_id_width_together(tmp_path: Path) -> None:
    wide = token_meta(META.layers, META.experts, META.top_k, dtype="uint16")
    other = columns(1) | {"experts": columns(1)["experts"].astype(np.uint16)}
    trace = token_trace(
        write_trace(tmp_path / "a.parquet", columns(), META), write_trace(tmp_path / "b.parquet", other, wide)
    )
    np.testing.assert_array_equal(
        read_columns(trace)["experts"], np.concatenate([columns()["experts"], other["experts"]])
    )


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("request", [2**63 - 1] * 12, "column request: ids from 9223372036854775807 to 9223372036854775807"),
        ("request", [-1] * 12, "column request: ids from -1 to -1 cannot be numbered on"),
        ("step", [*range(11), 2**31 - 1], "column step: ids from 0 to 2147483647 cannot be numbered on"),
    ],
)
def test_ids_too_large_to_be_numbered_on(tmp_path: Path, name: str, values: list[int], says: str) -> None:
    second = columns(1) | {name: np.array(values, columns()[name].dtype)}
    paths = [write_trace(tmp_path / "a.parquet", columns(), META), write_trace(tmp_path / "b.parquet", second, META)]
    with pytest.raises(TraceError, match=says) as caught:
        token_trace(*paths).check()
    assert caught.value.where == str(paths[1])
    assert token_trace(paths[1]).check().tokens == 12


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row_group", [1, 5, 100])
@pytest.mark.parametrize(("fault", "says"), [("id", "id 200 is not in 0..7"), ("twice", "expert 1 stands twice")])
def test_a_fault_in_the_ids_has_the_row_of_the_file(
    tmp_path: Path, layout: str, row_group: int, fault: str, says: str
) -> None:
    bad = columns()
    bad["experts"][7, 1] = [200, 1] if fault == "id" else [1, 1]
    path = write_trace(tmp_path / "t.parquet", bad, META, layout, row_group=row_group)
    with pytest.raises(TraceError) as caught:
        token_trace(path).check()
    row = 15 if layout.startswith("long") else 7
    assert f"{path}: column experts, row {row}, layer 5: {says}" in str(caught.value) and caught.value.fix


@pytest.mark.parametrize("layout", ["packed", "long"])
@pytest.mark.parametrize("row_group", [1, 6, 100])
def test_steps_that_go_back(tmp_path: Path, layout: str, row_group: int) -> None:
    back = columns(steps=[0, 1, 1, 5, 6, 6, 3, 7, 7, 7])
    path = write_trace(tmp_path / "t.parquet", back, META, layout, row_group=row_group)
    row = 12 if layout == "long" else 6
    for read in (token_trace(path).scan, token_trace(path).check):
        with pytest.raises(TraceError, match=f"column step, row {row}: step goes back from 6 to 3"):
            read()


def test_rows_in_errors_are_those_of_the_file_that_is_meant(tmp_path: Path) -> None:
    """Neither a warm-up that is left out nor a file before shifts them."""
    first, second = columns(steps=[0, 0, 1, 1, 2, 2, 3]), columns(1)
    first["experts"][:4] = first["experts"][0]
    second["experts"][9, 0] = [3, 3]
    paths = [write_trace(tmp_path / f"{i}.parquet", part, META) for i, part in enumerate((first, second))]
    trace = token_trace(*paths)
    assert trace.scan().notes
    with pytest.raises(TraceError) as caught:
        trace.check()
    assert f"{paths[1]}: column experts, row 9, layer 3" in str(caught.value)
    first["experts"][6, 1] = [9, 0]
    with pytest.raises(TraceError, match="row 6, layer 5: id 9"):
        token_trace(write_trace(paths[0], first, META)).check()


def test_a_long_trace_cut_inside_a_token(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.parquet", columns(), META, "long")
    pq.write_table(pq.read_table(path).slice(0, 23), path)
    with pytest.raises(TraceError, match="column layer, row 22: each token needs its 2 layers"):
        token_trace(path).scan()


def test_warm_up_is_left_out_with_a_note(tmp_path: Path) -> None:
    warm = columns()
    warm["experts"][:] = warm["experts"][::-1]
    warm["step"][:4] = [1, 1, 1, 1]
    warm["experts"][:4] = warm["experts"][0]
    trace = token_trace(write_trace(tmp_path / "t.parquet", warm, META))
    require_equal(read_columns(trace, gates=True), take(warm, slice(4, None)))
    scan = trace.scan()
    assert scan.tokens == 8 and scan.first_step == 2
    assert scan.notes == ("4 warm-up tokens at the start (all tokens of a step with identical ids) are left out",)
    assert next(trace.batches()).first_row == 4


def test_a_trace_that_is_like_a_warm_up_throughout_is_kept(tmp_path: Path) -> None:
    same = columns(steps=[0, 0, 1, 1, 1, 2, 2])
    same["experts"][:] = same["experts"][0]
    scan = token_trace(write_trace(tmp_path / "t.parquet", same, META)).scan()
    assert scan.tokens == 7 and scan.notes == ()


def test_hints_stand_in_for_metadata(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.parquet", columns(), None, "list")
    with pytest.raises(TraceError, match=r"metadata key ebsim\.trace is missing"):
        open_trace([path])
    trace = open_trace([path], LayoutHints(layers=(3, 5), experts=8, top_k=2, model="mine"))
    assert not isinstance(trace, CountTrace)
    assert trace.meta.model == "mine"
    np.testing.assert_array_equal(read_columns(trace)["experts"], columns()["experts"])


def test_a_file_without_rows_among_others(tmp_path: Path) -> None:
    paths = [write_trace(tmp_path / "a.parquet", columns(), META)]
    paths.append(write_trace(tmp_path / "b.parquet", take(columns(), slice(0, 0)), META))
    with pytest.raises(TraceError, match=r"b\.parquet: file has no rows"):
        token_trace(*paths).scan()


def test_ids_are_checked_until_one_pass_was_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_TOKENS", 4)
    bad = columns()
    bad["experts"][11, 1] = [6, 6]
    trace = token_trace(write_trace(tmp_path / "t.parquet", bad, META, row_group=4))
    next(trace.batches())
    for _ in range(2):
        with pytest.raises(TraceError, match="expert 6 stands twice"):
            trace.check()


def test_what_the_writer_wrote_comes_back(tmp_path: Path) -> None:
    source = token_trace(write_trace(tmp_path / "a.parquet", columns(), META, "list"))
    source.scan()
    with token_trace_writer(tmp_path / "b.parquet", META, source.workloads) as writer:
        for batch in source.batches(gates=True):
            writer.append(batch)
    trace = token_trace(tmp_path / "b.parquet")
    require_equal(read_columns(trace, gates=True), columns())
    phases = dict(zip(PHASES, trace.scan().phase_tokens.tolist(), strict=True))
    assert phases["decode"] == np.count_nonzero(columns()["phase"] == "decode") and phases["unknown"] == 0


def test_a_step_cut_between_two_files_stays_one_step(tmp_path: Path) -> None:
    parts = [columns(seed, steps) for seed, steps in ((0, [0, 1, 2, 2]), (1, [2, 2, 3]))]
    trace = token_trace(*(write_trace(tmp_path / f"{i}.parquet", part, META) for i, part in enumerate(parts)))
    assert read_columns(trace)["step"].tolist() == [0, 1, 2, 2, 2, 2, 3]
    assert trace.scan().steps == 4


def test_physical_slot_ids_are_refused(tmp_path: Path) -> None:
    meta = token_meta(layers=(3, 5), experts=8, top_k=2, ids="physical", plan_in_force="map.json")
    path = write_trace(tmp_path / "t.parquet", columns(), meta)
    with pytest.raises(TraceError, match=r"t\.parquet: ids are physical.*map\.json"):
        open_trace([path])
