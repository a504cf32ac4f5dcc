"""Whatever layout, row-group size and reading size: the same tokens come back, in whole steps, read-only."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray
from easybalance_sim.trace import source
from easybalance_sim.trace.schema import TokenBatch, TraceMeta
from easybalance_sim.trace.writer import token_trace_writer
from tests.trace_files import (
    LAYOUTS,
    Columns,
    joined,
    random_columns,
    read_columns,
    require_equal,
    take,
    token_meta,
    token_trace,
    with_defaults,
    write_trace,
)

OPTIONAL = ("position", "phase", "source_rank", "workload", "time_s", "gates")
few = settings(max_examples=60, deadline=None)

metas = st.builds(
    token_meta,
    st.lists(st.integers(0, 90), min_size=1, max_size=4, unique=True),
    st.sampled_from([4, 256, 300]),
    st.integers(1, 3),
)


@st.composite
def recordings(draw: st.DrawFn, meta: TraceMeta, optional: tuple[str, ...] = OPTIONAL) -> Columns:
    """A trace whose first step has one token, so that it is not taken for a warm-up."""
    sizes = draw(st.lists(st.integers(1, 9), max_size=12))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(sizes) + 1, max_size=len(sizes) + 1))
    steps = np.repeat(np.cumsum(gaps), [1, *sizes])
    columns = random_columns(np.random.default_rng(draw(st.integers(0, 99))), steps.tolist(), meta)
    missing = draw(st.sets(st.sampled_from(optional)))
    return {name: values for name, values in columns.items() if name not in missing}


def require_whole_steps(batches: list[TokenBatch]) -> None:
    before, row = -1, 0
    for batch in batches:
        assert batch.tokens > 0 and batch.first_row == row
        assert int(batch.step[0]) > before
        before, row = int(batch.step[-1]), row + batch.tokens


def arrays_of(batch: TokenBatch) -> list[AnyArray]:
    values = [getattr(batch, name) for name in batch.__dataclass_fields__]
    return [value for value in values if isinstance(value, np.ndarray)]


@few
@given(st.data(), metas, st.sampled_from(LAYOUTS), st.booleans(), st.integers(1, 40), st.integers(1, 30))
def test_every_layout_gives_the_same_tokens(
    data: st.DataObject, meta: TraceMeta, layout: str, plain: bool, row_group: int, batch_tokens: int
) -> None:
    columns = data.draw(recordings(meta))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(source, BATCH_TOKENS=batch_tokens, SPAN_TOKENS=batch_tokens),
    ):
        path = write_trace(Path(folder, "t.parquet"), columns, meta, layout, plain_texts=plain, row_group=row_group)
        trace = token_trace(path)
        require_equal(read_columns(trace, gates=True), with_defaults(columns))
        batches = list(trace.batches(gates=True))
    require_whole_steps(batches)
    for batch in batches:
        assert all(not a.flags.writeable and a.flags.c_contiguous for a in arrays_of(batch))
        assert batch.experts.dtype == meta.dtype


@few
@given(st.data(), metas, st.lists(st.sampled_from(LAYOUTS), min_size=2, max_size=3), st.booleans(), st.integers(1, 20))
def test_files_one_after_the_other(
    data: st.DataObject, meta: TraceMeta, layouts: list[str], restart: bool, batch_tokens: int
) -> None:
    """Steps that start again are numbered on, requests too; steps that go on stay as they are."""
    columns = data.draw(recordings(meta, OPTIONAL[:4]))
    marks = np.unique(columns["step"])
    bounds = [*np.array_split(marks, len(layouts)), np.array([])]
    parts = [take(columns, np.isin(columns["step"], span)) for span in bounds if len(span)]
    wanted = [parts[0]]
    for index, part in enumerate(parts[1:], 1):
        moved = dict(part)
        if restart:
            parts[index] = part | {"step": part["step"] - part["step"][0]}
            last_step, last_request = (max(int(w[name].max()) for w in wanted) for name in ("step", "request"))
            moved["step"] = parts[index]["step"] + last_step + 1
            moved["request"] = part["request"] + last_request + 1
        wanted.append(moved)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(source, BATCH_TOKENS=batch_tokens, SPAN_TOKENS=batch_tokens),
    ):
        for index, part in enumerate(parts):
            write_trace(Path(folder, f"{index}.parquet"), part, meta, layouts[index])
        trace = token_trace(Path(folder))
        require_equal(read_columns(trace, gates=True), with_defaults(joined(wanted)))
        require_whole_steps(list(trace.batches()))
        assert trace.scan().tokens == len(columns["step"])
        assert trace.scan().requests == len(np.unique(joined(wanted)["request"]))


@few
@given(st.data(), metas, st.sampled_from(LAYOUTS), st.integers(1, 30))
def test_rewriting_changes_nothing(data: st.DataObject, meta: TraceMeta, layout: str, batch_tokens: int) -> None:
    columns = data.draw(recordings(meta))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(source, BATCH_TOKENS=batch_tokens, SPAN_TOKENS=batch_tokens),
    ):
        trace = token_trace(write_trace(Path(folder, "a.parquet"), columns, meta, layout))
        trace.scan()
        with token_trace_writer(Path(folder, "b.parquet"), meta, trace.workloads) as writer:
            for batch in trace.batches(gates=True):
                writer.append(batch)
        again = token_trace(Path(folder, "b.parquet"))
        assert again.meta == meta
        require_equal(read_columns(again, gates=True), with_defaults(columns))


@few
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=8), st.integers(1, 6))
def test_warm_up_steps_are_those_of_a_naive_search(steps: list[tuple[int, bool]], batch_tokens: int) -> None:
    """steps: (tokens, do all carry the same ids). A step of one token tells nothing and ends the search."""
    meta, rng = token_meta(experts=50), np.random.default_rng(len(steps))
    step = np.repeat(np.arange(len(steps)), [size for size, _ in steps])
    columns = random_columns(rng, step.tolist(), meta)
    for index, (_, alike) in enumerate(steps):
        if alike:
            columns["experts"][step == index] = columns["experts"][step == index][:1]
    leading = itertools.takewhile(lambda each: each[0] > 1 and each[1], steps)
    warm = sum(size for size, _ in leading)
    dropped = 0 if warm == len(step) else warm
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.multiple(source, BATCH_TOKENS=batch_tokens, SPAN_TOKENS=batch_tokens),
    ):
        trace = token_trace(write_trace(Path(folder, "t.parquet"), columns, meta))
        require_equal(read_columns(trace, gates=True), take(columns, slice(dropped, None)))
        assert trace.scan().tokens == len(step) - dropped
        assert bool(trace.scan().notes) == (dropped > 0)
