"""`open_trace`: token traces as a stream of whole steps or as work on their parts, count traces as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray
from easybalance_sim.errors import TraceError
from easybalance_sim.trace import columns, layouts
from easybalance_sim.trace.counts import read_count_trace
from easybalance_sim.trace.files import LayoutHints, expand, identity, open_parquet, read_meta, require_same_model
from easybalance_sim.trace.opening import LIGHT, open_source
from easybalance_sim.trace.parts import Part, Source
from easybalance_sim.trace.scan import TraceScan
from easybalance_sim.trace.schema import SCORES, CountTrace, TokenBatch, TraceMeta
from easybalance_sim.trace.source import TraceFile, spans_of
from easybalance_sim.workers import Workers
from easybalance_sim.workers.threads import Threads, ahead

OPTIONAL = frozenset({"time_s", "gates", *SCORES})
Result = TypeVar("Result")
Advance = Callable[[int], None]
MayHold = Callable[[IntArray, IntArray], BoolArray]


def unheard(tokens: int) -> None:
    """Progress that nobody listens to."""


def open_trace(
    paths: Sequence[Path], hints: LayoutHints | None = None, workers: Workers | None = None
) -> TokenTrace | CountTrace:
    """Open trace files or folders of one model; workers: who passes over it, the threads of this process unless said.

    Raises `TraceError` with one line for anything unusable.
    """
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
    return read_count_trace(files, meta) if meta.kind == "counts" else TokenTrace(files, metas, meta, workers)


class TokenTrace:
    """A token trace over one or more files; memory stays flat however long it is.

    meta: the common metadata · paths: the files. Times and gates are read when every file has them. The first complete
    pass over the ids checks every one (see `validation`); later passes trust them.
    """

    def __init__(
        self, paths: Sequence[Path], metas: Sequence[TraceMeta], meta: TraceMeta, workers: Workers | None = None
    ) -> None:
        self.paths, self.meta = tuple(paths), meta
        self._workers: Workers = Threads() if workers is None else workers
        self._files = _files(paths, metas)
        self._spans = spans_of(self._files)
        self._opened: tuple[Source, TraceScan] | None = None
        self._unchecked = np.ones(len(self._spans), np.bool_)

    @property
    def tokens(self) -> int:
        """Tokens in the files, warm-up included."""
        return sum(span.tokens for span in self._spans)

    @property
    def workloads(self) -> tuple[str, ...]:
        """The names that `TokenBatch.workload` indexes."""
        return tuple(self._source().workloads)

    def scan(self, advance: Advance = unheard) -> TraceScan:
        """One pass over the light columns: totals, requests, phases, workloads; made once. advance: called with the
        tokens done. Raises `TraceError` on bad steps."""
        if self._opened is None:
            self._opened = open_source(self._files, self._spans, self._workers, advance)
        return self._opened[1]

    def check(self, advance: Advance = unheard) -> TraceScan:
        """Read everything once and raise `TraceError` for the first fault; returns the scan."""
        for _ in self.map(_read, advance=advance):
            pass
        return self.scan()

    def batches(self, *, gates: bool = False, scores: bool = False) -> Iterator[TokenBatch]:
        """All tokens in order, whole steps per batch, warm-up steps left out; gates and scores are read on demand."""
        (part,) = self._source().parts(1)
        names = (*LIGHT, "experts", *(("gates",) if gates else ()), *(SCORES if scores else ()))
        yield from ahead(part.batches(names, check=bool(self._unchecked.any())))
        self._unchecked[:] = False

    def map(
        self,
        work: Callable[[Iterable[TokenBatch]], Result],
        *,
        advance: Advance = unheard,
        state_bytes: int = 0,
        may_hold: MayHold | None = None,
    ) -> Iterator[Result]:
        """What `work` makes of the batches of each part of the trace, in order; workers share the parts.

        What is made of the results must not depend on where the trace is cut. advance: called with the tokens done, by
        any thread · state_bytes: what a part holds beside its batches, if that is much · may_hold: by the first and
        last steps of spans (int64[n] each) whether they hold any token that matters; the others are not even read.
        """
        source = self._source()
        wanted = None if may_hold is None else may_hold(source.first_step, source.last_step)
        parts = source.parts(self._workers.parts(state_bytes), wanted)
        advance(self.tokens - sum(part.tokens for part in parts))
        here = self._workers.here
        on_part = _OnPart(
            work=work,
            check=any(self._unchecked[part.first : part.end].any() for part in parts),
            advance=advance if here else unheard,
            read_ahead=len(parts) == 1,
        )
        for part, result in zip(parts, self._workers.run(on_part, parts), strict=True):
            if not here:
                advance(part.tokens)
            yield result
        for part in parts:
            self._unchecked[part.first : part.end] = False

    def _source(self) -> Source:
        self.scan()
        if self._opened is None:
            raise RuntimeError("a scanned trace has no source")
        return self._opened[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class _OnPart(Generic[Result]):
    """Work on one part, to be sent to whoever does it."""

    work: Callable[[Iterable[TokenBatch]], Result]
    check: bool
    advance: Advance
    read_ahead: bool

    def __call__(self, part: Part) -> Result:
        batches = part.batches((*LIGHT, "experts"), check=self.check)
        return self.work(self._counted(ahead(batches) if self.read_ahead else batches))

    def _counted(self, batches: Iterable[TokenBatch]) -> Iterator[TokenBatch]:
        for batch in batches:
            yield batch
            self.advance(batch.tokens)


def _read(batches: Iterable[TokenBatch]) -> None:
    for _ in batches:
        pass


def _files(paths: Sequence[Path], metas: Sequence[TraceMeta]) -> tuple[TraceFile, ...]:
    """The files, each with the columns that not every file has left out."""
    schemas = [open_parquet(path).schema_arrow for path in paths]
    for path, meta, schema in zip(paths, metas, schemas, strict=True):
        columns.require(schema, meta, str(path))
    left_out = OPTIONAL - OPTIONAL.intersection(*(schema.names for schema in schemas))
    return tuple(
        TraceFile(
            path=path.absolute(),
            name=str(path),
            meta=meta,
            layout=layouts.detect(schema, meta, str(path)),
            identity=identity(path),
            left_out=left_out,
        )
        for path, meta, schema in zip(paths, metas, schemas, strict=True)
    )
