"""`open_trace`: token traces as a stream of whole steps, count traces as one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from easybalance_sim.arrays import AnyArray, sealed
from easybalance_sim.errors import TraceError
from easybalance_sim.trace import columns, layouts
from easybalance_sim.trace.counts import read_count_trace
from easybalance_sim.trace.files import LayoutHints, expand, open_parquet, read_meta, reading, require_same_model
from easybalance_sim.trace.scan import TraceScan, scan_batches
from easybalance_sim.trace.schema import NO_WORKLOAD, CountTrace, TokenBatch, TraceMeta
from easybalance_sim.trace.validation import check_batch, check_steps, warmup_tokens

BATCH_TOKENS = 65536
_LIGHT = ("step", "request", "position", "phase", "source_rank", "workload", "time_s")


def open_trace(paths: Sequence[Path], hints: LayoutHints | None = None) -> TokenTrace | CountTrace:
    """Open trace files or folders of one model. Raises `TraceError` with one line for anything unusable."""
    files = expand(paths)
    metas = [read_meta(open_parquet(path), path, hints) for path in files]
    meta = require_same_model(metas, files)
    if meta.ids != "logical":
        plan = meta.plan_in_force or "the plan in force"
        raise TraceError(
            f"ids are {meta.ids}, not logical experts",
            where=str(files[0]),
            fix=f"map them back through {plan} and record logical ids",
        )
    return read_count_trace(files, meta) if meta.kind == "counts" else TokenTrace(files, metas, meta)


class TokenTrace:
    """A token trace over one or more files; memory stays flat however long it is.

    meta: the common metadata · paths: the files · workloads: names that `TokenBatch.workload` indexes, filled as
    batches are read and complete after `scan`. Times and gates are read when every file has them.
    """

    def __init__(self, paths: Sequence[Path], metas: Sequence[TraceMeta], meta: TraceMeta) -> None:
        self.paths, self.meta = tuple(paths), meta
        self._metas = tuple(metas)
        self._workloads: dict[str, int] = {NO_WORKLOAD: 0}
        self._scan: TraceScan | None = None
        self._checked = False
        self._warmup: int | None = None
        self._left_out: set[str] = set()
        for path, file_meta in zip(paths, metas, strict=True):
            schema = open_parquet(path).schema_arrow
            columns.require(schema, file_meta, str(path))
            self._left_out |= {"time_s", "gates"} - set(schema.names)

    @property
    def workloads(self) -> tuple[str, ...]:
        """Workload names by code."""
        return tuple(self._workloads)

    def scan(self) -> TraceScan:
        """One pass over the light columns: totals, requests, phases, workloads. Raises `TraceError` on bad steps."""
        if self._scan is None:
            self._scan = scan_batches(self._whole_steps(_LIGHT), self._warmup_tokens())
        return self._scan

    def check(self) -> TraceScan:
        """Read everything once and raise `TraceError` for the first fault; returns the scan."""
        for _ in self.batches():
            pass
        return self.scan()

    def batches(self, *, gates: bool = False) -> Iterator[TokenBatch]:
        """All tokens in order, whole steps per batch, warm-up steps left out; gates are read on demand.

        The first complete pass checks every id (see `validation`); later passes trust it.
        """
        self._warmup_tokens()
        yield from self._whole_steps((*_LIGHT, "experts", "gates") if gates else (*_LIGHT, "experts"))
        self._checked = True

    def _warmup_tokens(self) -> int:
        """Tokens of the leading steps in which all tokens carry identical ids (0 when the whole trace does)."""
        if self._warmup is None:
            self._warmup = warmup_tokens(self._whole_steps(("step", "request", "experts")))
        return self._warmup

    def _whole_steps(self, names: Sequence[str]) -> Iterator[TokenBatch]:
        carry: TokenBatch | None = None
        skip = self._warmup or 0
        for batch in self._numbered(names):
            joined = batch if carry is None else _join(carry, batch)
            cut = int(np.searchsorted(joined.step, joined.step[-1]))
            if cut > skip:
                yield _slice(joined, slice(skip, cut))
            skip, carry = max(0, skip - cut), _slice(joined, slice(cut, None))
        if carry is not None and carry.tokens > skip:
            yield _slice(carry, slice(skip, None))

    def _numbered(self, names: Sequence[str]) -> Iterator[TokenBatch]:
        """Raw batches of all files; a file whose steps start again is a new recording: it is numbered on, and its clock
        goes on where it would go back.

        A file that begins with the step at which the one before ended goes on with it, unless that is where both begin.
        """
        step_base = request_base = row = 0
        last_step, last_request, opening = -1, -1, -1
        last_time_s = time_base_s = 0.0
        for index in range(len(self.paths)):
            fresh = True
            for batch in self._file_batches(index, names):
                begin = int(batch.step[0])
                if fresh and index and (begin + step_base < last_step or begin == opening):
                    step_base, request_base = last_step + 1 - begin, last_request + 1
                    time_base_s = 0.0 if batch.time_s is None else max(0.0, last_time_s - float(batch.time_s[0]))
                opening = begin if fresh else opening
                fresh = False
                moved = _numbered_on(batch, step_base, request_base, row, str(self.paths[index]))
                if moved.time_s is not None:
                    later = moved.time_s + time_base_s
                    moved, last_time_s = replace(moved, time_s=sealed(later)), float(later[-1])
                last_step = int(moved.step[-1])
                last_request = max(last_request, int(moved.request.max()))
                row += moved.tokens
                yield moved

    def _file_batches(self, index: int, names: Sequence[str]) -> Iterator[TokenBatch]:
        path, meta = self.paths[index], self._metas[index]
        file = open_parquet(path)
        layout = layouts.detect(file.schema_arrow, meta, str(path))
        per_token = layouts.rows_per_token(layout, meta)
        wanted = [name for name in (*names, "layer") if name not in self._left_out]
        present = [name for name in wanted if name in file.schema_arrow.names]
        row, last_step = 0, -1
        for record in _whole_tokens(_records(file, BATCH_TOKENS * per_token, present, str(path)), per_token):
            with reading(str(path)):
                batch = columns.batch_from(record, layout, meta, self._workloads, str(path), row)
            check_steps(batch.step, last_step, str(path), row, per_token)
            if "experts" in present and not self._checked:
                check_batch(batch, meta, str(path), row, per_token)
            row, last_step = row + record.num_rows, int(batch.step[-1])
            yield batch
        if row == 0:
            raise TraceError("file has no rows", where=str(path), fix="record it again")


def _records(file: Any, rows: int, present: Sequence[str], where: str) -> Iterator[Any]:
    stream = file.iter_batches(batch_size=rows, columns=list(present))
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


def _numbered_on(batch: TokenBatch, step_base: int, request_base: int, row: int, where: str) -> TokenBatch:
    """The batch with its steps and requests moved up. Raises `TraceError` when they no longer fit."""
    moved: dict[str, AnyArray] = {}
    for name, base in (("step", step_base), ("request", request_base)):
        ids = getattr(batch, name)
        if base and (ids.min() < 0 or int(ids.max()) > np.iinfo(ids.dtype).max - base):
            raise TraceError(
                f"column {name}: ids from {ids.min()} to {ids.max()} cannot be numbered on after the files before",
                where=where,
                fix=f"number each file's {name} ids from 0",
            )
        moved[name] = sealed(ids + ids.dtype.type(base)) if base else ids
    return replace(batch, **moved, first_row=row)


def _slice(batch: TokenBatch, rows: slice) -> TokenBatch:
    return replace(batch.select(rows), first_row=batch.first_row + (rows.start or 0))


def _join(first: TokenBatch, second: TokenBatch) -> TokenBatch:
    def both(name: str) -> AnyArray | None:
        a, b = getattr(first, name), getattr(second, name)
        if a is None or b is None:
            return None
        return sealed(np.concatenate([a, b]))

    names = ("step", "request", "position", "phase", "source_rank", "workload", "experts", "gates", "time_s")
    return TokenBatch(**{name: both(name) for name in names}, first_row=first.first_row)  # type: ignore[arg-type]
