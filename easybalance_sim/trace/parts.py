"""Parts of a token trace that are read independently, and hold whole steps all the same.

A part begins with the first step that begins in its spans, and reads on in the spans behind it to the end of its last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray
from easybalance_sim.trace.numbering import Base
from easybalance_sim.trace.schema import TokenBatch, joined_batches
from easybalance_sim.trace.source import Span, TraceFile
from easybalance_sim.workers.threads import require_wanted

TAIL_TOKENS = 2048
"""Tokens read at once behind a part: most of them belong to the next."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A scanned trace: what it takes to read any part of it.

    base: of each file · first_step, last_step: int64[n] of each span, numbered on · workloads: code by name ·
    warm_until: by file, the first token of the trace behind its warm-up, 0 = it has none.
    """

    files: tuple[TraceFile, ...]
    spans: tuple[Span, ...]
    base: tuple[Base, ...]
    first_step: IntArray
    last_step: IntArray
    workloads: Mapping[str, int]
    warm_until: tuple[int, ...]

    def parts(self, count: int, wanted: BoolArray | None = None) -> list[Part]:
        """The trace in about `count` parts of about the same number of tokens, at most so many without `wanted`.

        wanted: bool[n] spans that are needed; parts without any are left out, and spans at the ends of the others.
        """
        tokens = np.array([span.tokens for span in self.spans])
        if wanted is not None and wanted.any():
            count = round(count * tokens.sum() / tokens[wanted].sum())
        ends = np.cumsum(tokens)
        marks = ends[-1] * np.arange(1, count) // count
        edges = np.unique(np.concatenate([[0], np.searchsorted(ends, marks, side="left") + 1, [len(ends)]]))
        needed = np.flatnonzero(np.ones(len(ends)) if wanted is None else wanted)
        found = []
        for first, end in itertools.pairwise(edges.tolist()):
            mine = needed[np.searchsorted(needed, first) : np.searchsorted(needed, end)]
            # Spans that lie wholly in a step which began before are read by the part with its beginning.
            begins = mine[self.last_step[mine] > self.last_step[mine[0] - 1]] if len(mine) and mine[0] else mine
            if len(begins):
                found.append(Part(source=self, first=int(begins[0]), end=int(mine[-1]) + 1))
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Spans `first` to `end` (not included) of a source."""

    source: Source
    first: int
    end: int

    @property
    def tokens(self) -> int:
        """Tokens of the spans."""
        return sum(span.tokens for span in self.source.spans[self.first : self.end])

    def batches(self, names: Sequence[str], *, check: bool) -> Iterator[TokenBatch]:
        """The tokens of the steps that begin here, whole steps per batch, without the warm-up. names: of the columns ·
        check: look at every id. Raises `TraceError` like `TraceFile.batches`."""
        source = self.source
        before = int(source.last_step[self.first - 1]) if self.first else -1
        closing = int(source.last_step[self.end - 1])
        for batch in whole_steps(self._numbered(names, check=check)):
            mine = slice(*np.searchsorted(batch.step, [before + 1, closing + 1]).tolist())
            if mine.start < mine.stop:
                yield _slice(batch, mine)
            if mine.stop < batch.tokens:
                return

    def _numbered(self, names: Sequence[str], *, check: bool) -> Iterator[TokenBatch]:
        source, closing = self.source, self.source.last_step[self.end - 1]
        end = self.end
        while end < len(source.spans) and source.first_step[end] == closing:
            end += 1
        workloads = dict(source.workloads)
        # Spans behind the part but for the last, whose rows are mostly the next part's.
        mine = end if end == self.end or source.last_step[end - 1] == closing else end - 1
        for span in (*_joined(source.spans[self.first : mine]), *source.spans[mine:end]):
            file = source.files[span.file]
            token = span.first_token
            at_once = None if span.first_token < source.spans[mine - 1].end_token else TAIL_TOKENS
            for batch in file.batches(span, names, workloads, check=check, at_once=at_once):
                require_wanted()
                warm = max(0, source.warm_until[span.file] - token)
                if warm < batch.tokens:
                    here = replace(batch, first_row=token)
                    yield source.base[span.file].of(_slice(here, slice(warm, None)))
                token += batch.tokens


def _joined(spans: Sequence[Span]) -> list[Span]:
    """One span per file, so that it is opened once."""
    found = []
    for _, group in itertools.groupby(spans, key=lambda span: span.file):
        first, *others = group
        last = others[-1] if others else first
        tokens = last.end_token - first.first_token
        found.append(replace(first, end_group=last.end_group, tokens=tokens))
    return found


def whole_steps(batches: Iterable[TokenBatch]) -> Iterator[TokenBatch]:
    """The same tokens, cut between steps; a batch that ends with a step is handed on as it is."""
    held: list[TokenBatch] = []
    for batch in batches:
        if held and held[-1].step[-1] == batch.step[0]:
            opening = int(np.searchsorted(held[0].step, batch.step[0]))
            if opening:
                yield _slice(held[0], slice(0, opening))
                held[0] = _slice(held[0], slice(opening, None))
            closing = int(np.searchsorted(batch.step, batch.step[-1]))
            if closing:
                yield joined_batches([*held, _slice(batch, slice(0, closing))])
                held = []
            held.append(_slice(batch, slice(closing, None)))
        else:
            if held:
                yield joined_batches(held)
            held = [batch]
    if held:
        yield joined_batches(held)


def _slice(batch: TokenBatch, rows: slice) -> TokenBatch:
    if rows.start in (None, 0) and rows.stop in (None, batch.tokens):
        return batch
    return replace(batch.select(rows), first_row=batch.first_row + (rows.start or 0))
