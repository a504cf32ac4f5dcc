"""Parts of a trace: together they are the trace, whole steps each, wherever row groups and files end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from easybalance_sim.errors import TraceError
from easybalance_sim.trace import source
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import TokenBatch
from tests.trace_files import (
    LAYOUTS,
    Columns,
    random_columns,
    read_columns,
    require_equal,
    take,
    token_meta,
    write_trace,
)
from tests.trace_files import token_trace as opened

META = token_meta(layers=(3, 5), experts=8, top_k=2)
STEPS = [0, 1, 1, 1, 2, 2, 4, 4, 4, 4, 4, 9, 9, 10, 12, 12, 12, 12, 12, 12]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "SPAN_TOKENS", 1)
    monkeypatch.setattr(source, "BATCH_TOKENS", 3)


def columns(seed: int = 0) -> Columns:
    return random_columns(np.random.default_rng(seed), STEPS, META)


def parts_of(trace: TokenTrace, count: int) -> list[list[TokenBatch]]:
    parts = trace._source().parts(count)
    return [list(part.batches(("step", "request", "experts"), check=True)) for part in parts]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row_group", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("count", [1, 2, 5, 99])
def test_parts_are_whole_steps_that_follow_one_another(tmp_path: Path, layout: str, row_group: int, count: int) -> None:
    trace = opened(write_trace(tmp_path / "t.parquet", columns(), META, layout, row_group=row_group))
    parts = parts_of(trace, count)
    assert len(parts) <= count
    batches = list(itertools.chain(*parts))
    assert np.concatenate([batch.step for batch in batches]).tolist() == STEPS
    np.testing.assert_array_equal(np.concatenate([batch.experts for batch in batches]), columns()["experts"])
    steps = [set(np.concatenate([batch.step for batch in part]).tolist()) for part in parts if part]
    assert sum(map(len, steps)) == len(set(STEPS))
    assert [batch.first_row for batch in batches] == [0, *np.cumsum([batch.tokens for batch in batches])[:-1].tolist()]


@pytest.mark.parametrize("cut", [(5,), (7, 12), (2, 8, 16)])
def test_parts_of_files_that_end_inside_a_step(tmp_path: Path, cut: tuple[int, ...]) -> None:
    whole = columns()
    paths = [
        write_trace(tmp_path / f"{number}.parquet", take(whole, slice(first, last)), META, row_group=2)
        for number, (first, last) in enumerate(itertools.pairwise([0, *cut, len(STEPS)]))
    ]
    trace = opened(*paths)
    require_equal(read_columns(trace, gates=True), whole)
    for count in (2, 3, 50):
        found = list(itertools.chain(*parts_of(trace, count)))
        assert np.concatenate([batch.step for batch in found]).tolist() == STEPS
        sizes = [batch.tokens for batch in found]
        assert [batch.first_row for batch in found] == [0, *np.cumsum(sizes)[:-1].tolist()]
    assert trace.scan().steps == len(set(STEPS)) and trace.scan().tokens == len(STEPS)


@pytest.mark.parametrize("row_group", [1, 3, 100])
def test_a_warm_up_in_several_spans_is_in_no_part(tmp_path: Path, row_group: int) -> None:
    warm = columns()
    warm["experts"][:6] = warm["experts"][0]
    warm["step"][0] = 1
    trace = opened(write_trace(tmp_path / "t.parquet", warm, META, row_group=row_group))
    for count in (1, 4, 20):
        found = list(itertools.chain(*parts_of(trace, count)))
        assert np.concatenate([batch.step for batch in found]).tolist() == STEPS[6:]
        assert found[0].first_row == 6
    assert trace.scan().tokens == 14 and trace.scan().first_step == 4


@pytest.mark.parametrize("row_group", [1, 4, 100])
def test_every_recording_has_its_own_warm_up(tmp_path: Path, row_group: int) -> None:
    """The second file starts again; the third goes on, and its first step stays, whatever it looks like."""
    parts = [take(columns(seed), slice(0, 11)) for seed in range(2)] + [take(columns(2), slice(11, None))]
    for part, tokens in ((parts[0], 4), (parts[1], 6), (parts[2], 2)):
        part["step"][0] = part["step"][1]
        part["experts"][:tokens] = part["experts"][0]
    paths = [write_trace(tmp_path / f"{n}.parquet", part, META, row_group=row_group) for n, part in enumerate(parts)]
    trace = opened(*paths)
    kept = [parts[0]["experts"][4:], parts[1]["experts"][6:], parts[2]["experts"]]
    for count in (1, 4, 50):
        found = [batch for part in parts_of(trace, count) for batch in part]
        np.testing.assert_array_equal(np.concatenate([batch.experts for batch in found]), np.concatenate(kept))
    scan = trace.scan()
    assert scan.tokens == sum(map(len, kept)) == len(read_columns(trace)["step"])
    assert scan.notes == (
        "10 warm-up tokens at the start of 2 recordings (all tokens of a step with identical ids) are left out",
    )


def test_a_warm_up_over_whole_files_of_a_recording(tmp_path: Path) -> None:
    """Two files of nothing else, then one that begins with it; a recording of nothing else is traffic."""
    parts = [take(columns(), rows) for rows in (slice(1, 4), slice(4, 6), slice(6, None))]
    for part, tokens in zip(parts, (3, 2, 5), strict=True):
        part["experts"][:tokens] = part["experts"][0]
    paths = [write_trace(tmp_path / f"{n}.parquet", part, META) for n, part in enumerate(parts)]
    trace = opened(*paths)
    assert read_columns(trace)["step"].tolist() == STEPS[11:]
    assert trace.scan().tokens == 9
    assert trace.scan().notes[0].startswith("10 warm-up tokens at the start (")
    assert opened(*paths[:2]).scan().tokens == 5 and opened(*paths[:2]).scan().notes == ()


@pytest.mark.parametrize("row_group", [1, 3])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_step_of_many_spans_is_read_once(
    tmp_path: Path, row_group: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    giant = random_columns(np.random.default_rng(0), [0, 1, *[2] * 30, 3, 3], META)
    trace = opened(write_trace(tmp_path / "t.parquet", giant, META, row_group=row_group))
    trace.scan()
    read: list[int] = []
    whole = source.TraceFile.batches

    def counted(*arguments: Any, **named: Any) -> Iterator[TokenBatch]:
        for batch in whole(*arguments, **named):
            read.append(batch.tokens)
            yield batch

    monkeypatch.setattr(source.TraceFile, "batches", counted)
    found = [batch for part in parts_of(trace, count) for batch in part]
    assert np.concatenate([batch.step for batch in found]).tolist() == giant["step"].tolist()
    assert sum(batch.tokens == 30 for batch in found) == 1
    assert sum(read) <= 34 + 3 * row_group * count


def test_steps_that_go_back_between_two_spans(tmp_path: Path) -> None:
    back = columns() | {"step": np.array([*range(10), 3, *range(10, 19)], np.int32)}
    path = write_trace(tmp_path / "t.parquet", back, META, row_group=5)
    with pytest.raises(TraceError, match="column step, row 10: step goes back from 9 to 3"):
        opened(path).scan()


def test_work_on_parts_gives_results_in_order_and_tells_of_every_token(tmp_path: Path) -> None:
    trace, told = opened(write_trace(tmp_path / "t.parquet", columns(), META, row_group=2)), list[int]()
    found = list(trace.map(lambda batches: [int(step) for one in batches for step in one.step], advance=told.append))
    assert len(found) > 1 and list(itertools.chain(*found)) == STEPS
    # A step that lies across parts counts with the spans before it, and whole with the part that it begins in.
    assert len(STEPS) <= sum(told) < 2 * len(STEPS)
    alone = list(trace.map(lambda batches: sum(one.tokens for one in batches), state_bytes=1 << 40))
    assert alone == [len(STEPS)]


def test_a_fault_is_found_by_whichever_part_comes_first(tmp_path: Path) -> None:
    bad = columns()
    bad["experts"][17, 0] = [1, 1]
    bad["experts"][9, 1] = [6, 6]
    trace = opened(write_trace(tmp_path / "t.parquet", bad, META, row_group=2))
    for _ in range(3):
        with pytest.raises(TraceError, match="row 9, layer 5: expert 6 stands twice"):
            trace.check()


@pytest.mark.parametrize("count", [1, 3, 50])
@pytest.mark.parametrize("row_group", [1, 2, 5])
def test_spans_that_hold_nothing_of_interest_are_not_read(tmp_path: Path, row_group: int, count: int) -> None:
    """Of the steps asked for every token comes, and no part lies wholly beside them."""
    trace = opened(write_trace(tmp_path / "t.parquet", columns(), META, row_group=row_group))
    for low, high in ((0, 1), (4, 10), (12, 99), (5, 8), (0, 99)):
        at = trace._source()
        wanted = (at.last_step >= low) & (at.first_step < high)
        parts = at.parts(count, wanted)
        batches = [batch for part in parts for batch in part.batches(("step", "request", "experts"), check=True)]
        steps = [step for batch in batches for step in batch.step.tolist()]
        assert [step for step in steps if low <= step < high] == [step for step in STEPS if low <= step < high]
        assert all(wanted[part.first] and wanted[part.end - 1] for part in parts)


def test_what_was_not_read_is_checked_when_it_is(tmp_path: Path) -> None:
    bad = columns()
    bad["experts"][17, 0] = [1, 1]
    trace = opened(write_trace(tmp_path / "t.parquet", bad, META, row_group=2))
    told: list[int] = []
    sizes = lambda batches: sum(one.tokens for one in batches)  # noqa: E731
    early = trace.map(sizes, may_hold=lambda first, last: first < 9, advance=told.append)
    assert sum(early) >= 11
    assert len(STEPS) - 1 <= sum(told) < 2 * len(STEPS)
    for _ in range(2):
        with pytest.raises(TraceError, match="row 17, layer 3: expert 1 stands twice"):
            list(trace.map(sizes))
