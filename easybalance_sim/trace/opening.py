"""The first pass over a token trace: every span's extent, then one numbering and one scan for all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from easybalance_sim.arrays import Int32Array, frozen
from easybalance_sim.trace.numbering import Base, Extent, bases
from easybalance_sim.trace.parts import TAIL_TOKENS, Source, whole_steps
from easybalance_sim.trace.scan import RunScan, TraceScan, joined, scan_run
from easybalance_sim.trace.schema import NO_WORKLOAD, TokenBatch
from easybalance_sim.trace.source import Span, TraceFile
from easybalance_sim.trace.validation import alike_tokens, check_steps
from easybalance_sim.workers import Workers
from easybalance_sim.workers.threads import require_wanted

LIGHT = ("step", "request", "position", "phase", "source_rank", "workload", "time_s")
IDS = ("step", "request", "experts")


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """Consecutive spans of one file."""

    file: TraceFile
    spans: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Found:
    """Of a run: the extent of every span, the scan of its tokens, and of those that are warm-up if a recording begins
    with the file."""

    extents: tuple[Extent, ...]
    scan: RunScan
    warm: RunScan


def open_source(
    files: Sequence[TraceFile], spans: Sequence[Span], workers: Workers, advance: Callable[[int], None]
) -> tuple[Source, TraceScan]:
    """Scan the files. advance: called with the tokens done. Raises `TraceError` for steps that go back and ids that
    cannot be numbered on."""
    by_file = [list(group) for _, group in itertools.groupby(spans, key=lambda span: span.file)]
    alike = [_alike(file, mine) for file, mine in zip(files, by_file, strict=True)]
    warm_until = tuple(mine[0].first_token + tokens for mine, tokens in zip(by_file, alike, strict=True))
    runs = _runs(files, spans, workers.parts(0))
    found: list[_Found] = []
    for run, one in zip(runs, workers.run(partial(_scan, warm_until=warm_until), runs), strict=True):
        found.append(one)
        advance(sum(span.tokens for span in run.spans))
    extents = [extent for one in found for extent in one.extents]
    for (span, before), (later, after) in itertools.pairwise(zip(spans, extents, strict=True)):
        if span.file == later.file:
            begin: Int32Array = np.array([after.first_step], np.int32)
            file = files[span.file]
            check_steps(begin, before.last_step, file.name, later.first_row, file.rows_per_token)
    pairs = itertools.groupby(zip(spans, extents, strict=True), key=lambda pair: pair[0].file)
    base = bases([_over([extent for _, extent in group]) for _, group in pairs], [file.name for file in files])
    warm = _warmups(base, alike, [sum(span.tokens for span in mine) for mine in by_file])
    kept = []
    for run, one in zip(runs, found, strict=True):
        index = run.spans[0].file
        parts = [one.scan] if warm[index] else [one.warm, one.scan]
        kept += [part.numbered(base[index]) for part in parts]
    recordings = itertools.groupby(zip(base, warm, strict=True), key=lambda pair: pair[0].recording)
    dropped = [sum(tokens for _, tokens in group) for _, group in recordings]
    scan, workloads = joined(kept, [tokens for tokens in dropped if tokens])
    moved = [base[span.file].step for span in spans]
    source = Source(
        files=tuple(files),
        spans=tuple(spans),
        base=base,
        first_step=frozen([extent.first_step + step for extent, step in zip(extents, moved, strict=True)], np.int64),
        last_step=frozen([extent.last_step + step for extent, step in zip(extents, moved, strict=True)], np.int64),
        workloads=workloads,
        warm_until=tuple(until if tokens else 0 for until, tokens in zip(warm_until, warm, strict=True)),
    )
    return source, scan


def _alike(file: TraceFile, spans: Sequence[Span]) -> int:
    """Tokens of the leading steps of a file in which all carry identical ids."""
    batches = itertools.chain.from_iterable(
        file.batches(span, IDS, {}, check=False, at_once=TAIL_TOKENS) for span in spans
    )
    return alike_tokens(whole_steps(batches))


def _warmups(base: Sequence[Base], alike: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """Tokens of each file that are the warm-up of its recording: those alike at its start, over all of its first files
    that hold nothing else. A recording that is alike throughout is traffic.

    alike, tokens: of each file.
    """
    found: list[int] = []
    for _, group in itertools.groupby(zip(base, alike, tokens, strict=True), key=lambda entry: entry[0].recording):
        mine = [(same, total) for _, same, total in group]
        whole = list(itertools.takewhile(lambda pair: pair[0] == pair[1], mine))
        rest = mine[len(whole) :]
        leading = [same for same, _ in whole] + [rest[0][0]] + [0] * (len(rest) - 1) if rest else [0] * len(mine)
        found += leading
    return found


def _runs(files: Sequence[TraceFile], spans: Sequence[Span], parts: int) -> list[Run]:
    """All spans in order, in about so many runs or one per file."""
    wanted = sum(span.tokens for span in spans) / parts
    found: list[Run] = []
    for index, group in itertools.groupby(spans, key=lambda span: span.file):
        mine = list(group)
        ends = np.cumsum([span.tokens for span in mine])
        number = ((ends - 1) // max(wanted, 1)).astype(np.int64)
        for _, members in itertools.groupby(zip(number, mine, strict=True), key=lambda pair: int(pair[0])):
            found.append(Run(file=files[index], spans=tuple(span for _, span in members)))
    return found


def _scan(run: Run, *, warm_until: tuple[int, ...]) -> _Found:
    """warm_until: by file, the first token of the trace behind what may be its warm-up."""
    workloads = {NO_WORKLOAD: 0}
    extents: list[Extent] = []
    warm: list[TokenBatch] = []

    def counted() -> Iterator[TokenBatch]:
        for span in run.spans:
            token, parts = span.first_token, []
            for batch in run.file.batches(span, LIGHT, workloads, check=False):
                require_wanted()
                parts.append(_extent(batch))
                cut = min(max(0, warm_until[span.file] - token), batch.tokens)
                if cut:
                    warm.append(batch.select(slice(0, cut)))
                if cut < batch.tokens:
                    yield batch.select(slice(cut, None)) if cut else batch
                token += batch.tokens
            extents.append(_over(parts))

    scan = scan_run(counted(), workloads)
    return _Found(extents=tuple(extents), scan=scan, warm=scan_run(warm, workloads))


def _extent(batch: TokenBatch) -> Extent:
    return Extent(
        first_step=int(batch.step[0]),
        last_step=int(batch.step[-1]),
        least_request=int(batch.request.min()),
        most_request=int(batch.request.max()),
        begins_s=None if batch.time_s is None else float(batch.time_s[0]),
        ends_s=None if batch.time_s is None else float(batch.time_s[-1]),
    )


def _over(parts: Sequence[Extent]) -> Extent:
    """The extent of what follows one another in a file."""
    return Extent(
        first_step=parts[0].first_step,
        last_step=parts[-1].last_step,
        least_request=min(part.least_request for part in parts),
        most_request=max(part.most_request for part in parts),
        begins_s=parts[0].begins_s,
        ends_s=parts[-1].ends_s,
    )
