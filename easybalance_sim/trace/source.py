"""The files of a token trace and the spans of row groups that are read independently of one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easybalance_sim.arrays import IntArray
from easybalance_sim.errors import TraceError
from easybalance_sim.kernels.threads import cores
from easybalance_sim.trace import columns, layouts
from easybalance_sim.trace.files import identity, open_parquet, reading
from easybalance_sim.trace.schema import TokenBatch, TraceMeta
from easybalance_sim.trace.validation import check_batch, check_steps

BATCH_TOKENS = 65536
SPAN_TOKENS = 32768
"""Least tokens of a span: enough work to be worth opening the file for."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """Row groups of one file, cut between tokens.

    file: index of the file · first_group, end_group: row groups, the end not included · first_row: number of the first
    row in the file · first_token: number of the first token in the trace · tokens: how many.
    """

    file: int
    first_group: int
    end_group: int
    first_row: int
    first_token: int
    tokens: int

    @property
    def end_token(self) -> int:
        """The first token behind it."""
        return self.first_token + self.tokens


@dataclass(frozen=True, kw_only=True)
class TraceFile:
    """One Parquet file of token rows. path: absolute, so that workers elsewhere find it · name: as the user gave it ·
    identity: of its contents (see `files.identity`) · left_out: columns that are not read because other files lack
    them."""

    path: Path
    name: str
    meta: TraceMeta
    layout: str
    identity: str
    left_out: frozenset[str] = frozenset()

    @property
    def rows_per_token(self) -> int:
        """File rows that make one token."""
        return layouts.rows_per_token(self.layout, self.meta)

    def open(self) -> Any:
        """The `pyarrow.parquet.ParquetFile`. Raises `TraceError` when another file lies under the path: on a worker,
        or since it was written anew."""
        if identity(self.path, self.name) != self.identity:
            raise TraceError(
                "is another file than the one the run began with",
                where=self.name,
                fix="put the same trace under this path on every worker and leave it alone during the run",
            )
        return open_parquet(self.path, self.name)

    def batches(
        self, span: Span, names: Sequence[str], workloads: dict[str, int], *, check: bool, at_once: int | None = None
    ) -> Iterator[TokenBatch]:
        """The tokens of a span as the file numbers them, `at_once` per batch; `workloads` learns new names.

        Raises `TraceError` with the row of the file for steps that go back inside the span, for values that no column
        can hold and, with `check`, for impossible ids.
        """
        file = self.open()
        present = [name for name in (*names, "layer") if name in file.schema_arrow.names and name not in self.left_out]
        row, last_step, per_token = span.first_row, -1, self.rows_per_token
        groups = range(span.first_group, span.end_group)
        rows = (at_once or BATCH_TOKENS) * per_token
        for record in _whole_tokens(_records(file, groups, rows, present, self.name), per_token):
            with reading(self.name):
                batch = columns.batch_from(record, self.layout, self.meta, workloads, self.name, row)
            check_steps(batch.step, last_step, self.name, row, per_token)
            if check and "experts" in present:
                check_batch(batch, self.meta, self.name, row, per_token)
            row, last_step = row + record.num_rows, int(batch.step[-1])
            yield batch


def spans_of(files: Sequence[TraceFile]) -> tuple[Span, ...]:
    """All files cut into spans, in order. Raises `TraceError` for a file without rows."""
    found: list[Span] = []
    token = 0
    for index, file in enumerate(files):
        footer = file.open().metadata
        if footer.num_rows == 0:
            raise TraceError("file has no rows", where=file.name, fix="record it again")
        ends = np.cumsum([footer.row_group(group).num_rows for group in range(footer.num_row_groups)])
        group = row = 0
        for last in _cuts(ends, file.rows_per_token):
            tokens = -(-(int(ends[last]) - row) // file.rows_per_token)
            found.append(
                Span(file=index, first_group=group, end_group=last + 1, first_row=row, first_token=token, tokens=tokens)
            )
            group, row, token = last + 1, int(ends[last]), token + tokens
    return tuple(found)


def _cuts(ends: IntArray, rows_per_token: int) -> list[int]:
    """The last row group of each span; ends: int64[n] rows up to the end of each group."""
    found, begin = [], 0
    for group, end in enumerate(ends[:-1].tolist()):
        if end - begin >= SPAN_TOKENS * rows_per_token and end % rows_per_token == 0 and end < ends[-1]:
            found.append(group)
            begin = end
    return [*found, len(ends) - 1]


def _records(file: Any, groups: Iterable[int], rows: int, present: Sequence[str], where: str) -> Iterator[Any]:
    stream = file.iter_batches(batch_size=rows, row_groups=list(groups), columns=list(present), use_threads=cores() > 1)
    while True:
        with reading(where):
            record = next(stream, None)
        if record is None:
            return
        if record.num_rows:
            yield record


def _whole_tokens(records: Iterator[Any], per_token: int) -> Iterator[Any]:
    """The same rows, cut between tokens: Arrow ends a record where a row group ends."""
    if per_token == 1:
        yield from records
        return
    left: Any = None
    for record in records:
        joined = record
        if left is not None and left.num_rows:
            joined = pa.Table.from_batches([left, record]).unify_dictionaries().combine_chunks().to_batches()[0]
        whole = joined.num_rows // per_token * per_token
        if whole:
            yield joined.slice(0, whole)
        left = joined.slice(whole)
    if left is not None and left.num_rows:
        yield left
