"""Continuous batching imposed on routed tokens of single requests, and the trace that comes of it.

A request takes one step per `PROMPT_TOKENS_PER_STEP` tokens of its prompt, then one per generated token. Its ids lie in
a temporary file until its steps are known, so that memory stays flat.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, IntArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.batching import ages, arrival_steps, queue_order, schedule
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.schema import DECODE, PREFILL, UNKNOWN_PHASE, TokenBatch, TraceMeta
from easybalance_sim.trace.tables import read_arrivals, text_codes
from easybalance_sim.trace.writer import token_trace_writer

PROMPT_TOKENS_PER_STEP = 2048
"""Prompt tokens of one request in one step: engines chunk prompts at 2,048 to 8,192."""
CHUNK_TOKENS = 65536


@dataclass(frozen=True, kw_only=True, eq=False)
class Requests:
    """Routed tokens of Q requests, request by request and by position inside.

    row: int64[T] row of each token among the ids · request, position: int64[T] · length: int64[Q] tokens, ≥ 1 ·
    prompt: int64[Q] how many of them, from the first on, are its prompt, -1 = nobody said · workload: int64[Q] codes
    into `workloads`.
    """

    row: IntArray
    request: IntArray
    position: IntArray
    length: IntArray
    prompt: IntArray
    workload: IntArray
    workloads: tuple[str, ...]

    @property
    def inside(self) -> IntArray:
        """int64[T] number of each token in its request."""
        return np.arange(len(self.row)) - np.repeat(np.cumsum(self.length) - self.length, self.length)

    @property
    def phase(self) -> AnyArray:
        """uint8[T] index into `PHASES`."""
        prompt = np.repeat(self.prompt, self.length)
        known = np.where(self.inside < prompt, PREFILL, DECODE)
        return np.where(prompt < 0, UNKNOWN_PHASE, known).astype(np.uint8)

    def turns(self) -> tuple[IntArray, IntArray]:
        """int64[T] steps from the beginning of a request to each token · int64[Q] steps of each request."""
        prompt = np.maximum(self.prompt, 0)
        chunks = -(-prompt // PROMPT_TOKENS_PER_STEP)
        of_prompt, before = np.repeat(prompt, self.length), np.repeat(chunks, self.length)
        inside = self.inside
        turn = np.where(inside < of_prompt, inside // PROMPT_TOKENS_PER_STEP, before + inside - of_prompt)
        return turn, chunks + self.length - prompt


class RequestList:
    """Requests as they are read, one after the other, their tokens in the order in which ids are spooled."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._position: list[IntArray] = []
        self._prompt: list[int] = []
        self._workload: list[str] = []

    def add(self, number: int, position: IntArray, prompt: int | None, workload: str) -> None:
        """One request. position: int64[t] rising · prompt: tokens of its prompt, recorded or not, None = not said."""
        self._numbers.append(number)
        self._position.append(position)
        self._prompt.append(-1 if prompt is None else int(np.count_nonzero(position < prompt)))
        self._workload.append(workload)

    def requests(self) -> Requests:
        """All of them, at least one."""
        length = np.array([len(one) for one in self._position])
        workload, names = text_codes(self._workload)
        return Requests(
            row=np.arange(int(length.sum())),
            request=np.repeat(np.array(self._numbers, np.int64), length),
            position=np.concatenate(self._position),
            length=length,
            prompt=np.array(self._prompt, np.int64),
            workload=workload,
            workloads=tuple(names),
        )

    def notes(self) -> tuple[str, ...]:
        """What to say when prompts are not told from generated tokens."""
        unsaid = self._prompt.count(-1)
        what = f"{unsaid:,} of {len(self._prompt):,} requests do not say the length of their prompt"
        return (f"{what}: their tokens have no phase and run one per step",) if unsaid else ()


class IdSpool:
    """Expert ids on disk, in the order of their arrival."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def append(self, ids: AnyArray) -> None:
        """Add [T, L, K] ids, checked and in the dtype of the trace."""
        self._stream.write(np.ascontiguousarray(ids).data)

    def ids(self, meta: TraceMeta, where: str) -> AnyArray:
        """[T, L, K] all of them, mapped. Raises `TraceError` when there are none."""
        self._stream.flush()
        width = len(meta.layers) * meta.top_k * np.dtype(meta.dtype).itemsize
        rows = self._stream.tell() // width
        if rows == 0:
            raise TraceError("holds no routed tokens", where=where, fix="record it again")
        return np.memmap(self._stream, meta.dtype, "r", shape=(rows, len(meta.layers), meta.top_k))


@contextlib.contextmanager
def id_spool(job: Conversion) -> Iterator[IdSpool]:
    """A spool beside the output. Raises `UsageError` for settings that serve no request and where nothing can be
    written."""
    if not 1 <= job.ranks <= np.iinfo(np.int16).max:
        raise UsageError(f"--ranks is {job.ranks}", fix="give 1 to 32767")
    try:
        stream = tempfile.TemporaryFile(dir=job.output.parent)  # noqa: SIM115
    except OSError as error:
        raise UsageError(
            f"cannot write here: {error.strerror}", where=str(job.output), fix="choose another -o"
        ) from error
    with stream:
        yield IdSpool(stream)


def write_served(
    job: Conversion, meta: TraceMeta, requests: Requests, ids: AnyArray, notes: tuple[str, ...] = ()
) -> Converted:
    """Batch the requests as `job` says and write `job.output`. ids: [rows, L, K] checked · notes: of the source.

    Raises `UsageError` for settings that do not fit.
    """
    served, more = _serve(job, requests)
    with token_trace_writer(job.output, meta, requests.workloads) as writer:
        advance = job.progress("convert", Amount(len(served.row), "tokens"))
        for batch in _batches(served, ids):
            writer.append(batch)
            advance(batch.tokens)
    return Converted(
        path=job.output,
        kind="tokens",
        model=meta.model,
        tokens=len(served.row),
        steps=len(np.unique(served.step)),
        layers=len(meta.layers),
        experts=meta.experts,
        top_k=meta.top_k,
        notes=notes + more,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Served:
    """Tokens in the order of the trace; row: among the ids · time_s: None without arrivals."""

    row: IntArray
    step: IntArray
    request: IntArray
    position: IntArray
    phase: AnyArray
    source_rank: IntArray
    workload: IntArray
    time_s: FloatArray | None


def _serve(job: Conversion, requests: Requests) -> tuple[_Served, tuple[str, ...]]:
    queue = queue_order(job.order, requests.workload, job.seed)
    arrival = None
    if job.arrivals is not None:
        arrival = arrival_steps(read_arrivals(job.arrivals), len(queue), job.step_s, str(job.arrivals))
    free_running = arrival is None and len(queue) >= job.concurrency
    turn, turns = requests.turns()
    midway = free_running and job.midway
    age = ages(turns[queue], job.concurrency, job.seed) if midway else np.zeros(len(queue), np.int64)
    plan = schedule(turns[queue] - age, job.concurrency, arrival)
    place, begin = np.empty_like(queue), np.empty_like(queue)
    place[queue], begin[queue] = np.arange(len(queue)), plan.start - age
    code = np.repeat(np.arange(len(queue)), requests.length)
    step = begin[code] + turn
    if step.max() > np.iinfo(np.int32).max:
        raise UsageError("arrivals span more steps than the format counts", fix="give a longer --step-ms")
    done = step < plan.start[place][code]
    late = step >= plan.full_until if free_running and not job.drain else np.zeros_like(done)
    served = _ordered(job, requests, step, place[code], np.flatnonzero(~(done | late)), arrival is not None)
    if arrival is None and len(queue) < job.concurrency:
        return served, (f"{len(queue)} requests never fill {job.concurrency} slots; all tokens are kept",)
    return served, _left_out(job, done, late & ~done)


def _ordered(
    job: Conversion, requests: Requests, step: IntArray, place: IntArray, kept: IntArray, timed: bool
) -> _Served:
    """The kept tokens by step, inside by place in the queue. step, place: int64[T]."""
    kept = kept[np.lexsort((place[kept], step[kept]))]
    workload = np.repeat(requests.workload, requests.length)
    return _Served(
        row=requests.row[kept],
        step=step[kept],
        request=requests.request[kept],
        position=requests.position[kept],
        phase=requests.phase[kept],
        source_rank=place[kept] % job.ranks,
        workload=workload[kept],
        time_s=step[kept].astype(np.float64) * job.step_s if timed else None,
    )


def _left_out(job: Conversion, done: BoolArray, late: BoolArray) -> tuple[str, ...]:
    notes = []
    if late.any():
        why = f"the ramp-down with fewer than {job.concurrency} requests is no traffic of a loaded server"
        notes.append(f"{late.sum():,} of {len(late):,} tokens left out: {why} (--drain keeps it)")
    if done.any():
        notes.append(f"{done.sum():,} of {len(done):,} tokens left out: done before the trace meets the first requests")
    return tuple(notes)


def _batches(served: _Served, ids: AnyArray) -> Iterator[TokenBatch]:
    """The trace in batches of whole steps."""
    begin = 0
    while begin < len(served.row):
        last = served.step[min(begin + CHUNK_TOKENS, len(served.row)) - 1]
        end = int(np.searchsorted(served.step, last, side="right"))
        part = slice(begin, end)
        yield TokenBatch(
            step=served.step[part].astype(np.int32),
            request=served.request[part],
            position=served.position[part].astype(np.int32),
            phase=served.phase[part],
            source_rank=served.source_rank[part].astype(np.int16),
            workload=served.workload[part].astype(np.int16),
            experts=np.asarray(ids[served.row[part]]),
            time_s=None if served.time_s is None else served.time_s[part],
            first_row=begin,
        )
        begin = end
