"""Light passes over runs of a token trace, joined: totals, and the life of every request."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int16Array, Int32Array, IntArray, frozen, sealed
from easybalance_sim.trace.columns import workload_code
from easybalance_sim.trace.numbering import Base
from easybalance_sim.trace.schema import NO_WORKLOAD, PHASES, TokenBatch

NO_STEPS: FloatArray = sealed(np.zeros((0, 3)))
_MERGE_EVERY = 64
"""Batches whose requests are held apart: with requests that live long, more would make memory grow with the trace."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceScan:
    """What a pass over the light columns of a token trace finds.

    tokens, steps: totals · first_step, last_step · request: int64[Q] sorted ids · request_first, request_last:
    int32[Q] steps · request_workload: int16[Q] of its first token · request_tokens: int64[Q] ·
    phase_tokens: int64[3] by phase code · workload_tokens: int64[n] by workload code · max_source: highest source rank,
    -1 = none known · has_time: all rows carry seconds · seconds: from the first token to the last, 0 without times ·
    clock_back: float64[n, 3] steps that begin earlier than the one before: number, when that began, when this did ·
    notes: lines for the user.
    """

    tokens: int
    steps: int
    first_step: int
    last_step: int
    request: IntArray
    request_first: Int32Array
    request_last: Int32Array
    request_workload: Int16Array
    request_tokens: IntArray
    phase_tokens: IntArray
    workload_tokens: IntArray
    max_source: int
    has_time: bool
    seconds: float = 0.0
    clock_back: FloatArray = field(default_factory=lambda: NO_STEPS)
    notes: tuple[str, ...] = field(default=())

    @property
    def requests(self) -> int:
        """Q."""
        return len(self.request)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunScan:
    """What a pass over the light columns of a run of tokens finds, for `joined`.

    lives: int64[5, q], see `_lives`, workloads by the index into `workloads` · first_step, last_step: -1 = no token
    counts · phase_tokens: int64[3] · workload_tokens: int64[n] · begins_s, ends_s: of the first and the last token ·
    step_began_s: of the last step's first token · clock_back: float64[n, 3], see `TraceScan`.
    """

    tokens: int
    steps: int
    first_step: int
    last_step: int
    lives: AnyArray
    phase_tokens: IntArray
    workload_tokens: IntArray
    workloads: tuple[str, ...]
    max_source: int
    begins_s: float
    ends_s: float
    has_time: bool
    step_began_s: float
    clock_back: FloatArray

    def numbered(self, base: Base) -> RunScan:
        """The same with steps, requests and times moved up."""
        moved = base.step if self.tokens else 0
        return replace(
            self,
            lives=self.lives + np.array([base.request, base.step, base.step, 0, 0])[:, None],
            first_step=self.first_step + moved,
            last_step=self.last_step + moved,
            begins_s=self.begins_s + base.time_s,
            ends_s=self.ends_s + base.time_s,
            step_began_s=self.step_began_s + base.time_s,
            clock_back=self.clock_back + np.array([base.step, base.time_s, base.time_s]),
        )


def scan_run(batches: Iterable[TokenBatch], workloads: Mapping[str, int]) -> RunScan:
    """Scan consecutive batches; workloads: code of each name, may grow while they are read."""
    tokens = steps = 0
    first = last = max_source = -1
    has_time, begins_s, ends_s, step_began_s = True, 0.0, 0.0, 0.0
    back = [NO_STEPS]
    phases, named = np.zeros(len(PHASES), np.int64), np.zeros(0, np.int64)
    lives: list[AnyArray] = []
    for batch in batches:
        if first < 0:
            first, begins_s = int(batch.step[0]), 0.0 if batch.time_s is None else float(batch.time_s[0])
            step_began_s = begins_s
        steps += int(np.count_nonzero(np.diff(batch.step))) + int(batch.step[0] != last)
        if batch.time_s is not None:
            found, step_began_s = _clock_back(batch.step, batch.time_s, last, step_began_s)
            back.append(found)
        tokens, last = tokens + batch.tokens, int(batch.step[-1])
        max_source = max(max_source, int(batch.source_rank.max()))
        has_time &= batch.time_s is not None
        ends_s = 0.0 if batch.time_s is None else float(batch.time_s[-1])
        phases += np.bincount(batch.phase, minlength=len(PHASES))
        seen = np.bincount(batch.workload)
        named = np.pad(named, (0, max(0, len(seen) - len(named))))
        named[: len(seen)] += seen
        lives.append(_lives(batch))
        if len(lives) > _MERGE_EVERY:
            lives = [_merge(lives)]
    return RunScan(
        tokens=tokens,
        steps=steps,
        first_step=first,
        last_step=last,
        lives=_merge(lives),
        phase_tokens=phases,
        workload_tokens=np.pad(named, (0, max(0, len(workloads) - len(named)))),
        workloads=tuple(workloads),
        max_source=max_source,
        begins_s=begins_s,
        ends_s=ends_s,
        has_time=has_time,
        step_began_s=step_began_s,
        clock_back=np.concatenate(back),
    )


def joined(runs: Sequence[RunScan], warmups: Sequence[int]) -> tuple[TraceScan, dict[str, int]]:
    """The scan of runs that follow one another in one numbering, and the code of every workload.

    warmups: tokens that were left out at the start of each recording that has some. Raises `TraceError` when there are
    too many workloads.
    """
    codes = {NO_WORKLOAD: 0}
    known = [np.array([workload_code(name, codes) for name in run.workloads], np.int64) for run in runs]
    named = np.zeros(len(codes), np.int64)
    for run, code in zip(runs, known, strict=True):
        np.add.at(named, code, run.workload_tokens)
    lives = [
        np.stack([*run.lives[:3], code[run.lives[3]], run.lives[4]]) for run, code in zip(runs, known, strict=True)
    ]
    lifetime = _merge(lives)
    full = [run for run in runs if run.tokens]
    shared = sum(before.last_step == after.first_step for before, after in itertools.pairwise(full))
    has_time = bool(full) and all(run.has_time for run in full)
    found = TraceScan(
        tokens=sum(run.tokens for run in full),
        steps=sum(run.steps for run in full) - shared,
        first_step=full[0].first_step if full else -1,
        last_step=full[-1].last_step if full else -1,
        request=frozen(lifetime[0]),
        request_first=frozen(lifetime[1], np.int32),
        request_last=frozen(lifetime[2], np.int32),
        request_workload=frozen(lifetime[3], np.int16),
        request_tokens=frozen(lifetime[4]),
        phase_tokens=frozen(sum((run.phase_tokens for run in runs), np.zeros(len(PHASES), np.int64))),
        workload_tokens=frozen(named),
        max_source=max((run.max_source for run in runs), default=-1),
        has_time=has_time,
        seconds=full[-1].ends_s - full[0].begins_s if has_time else 0.0,
        clock_back=frozen(_clocks_back(full) if has_time else NO_STEPS),
        notes=_warmup_notes(warmups),
    )
    return found, codes


def _clock_back(step: Int32Array, time_s: FloatArray, last: int, began_s: float) -> tuple[FloatArray, float]:
    """Steps of a batch that begin before the one before does, and when the last one began.

    last, began_s: the step before the batch, which may go on in it, and when it began.
    """
    first = _starts(step)
    first = first[step[first] != last]
    times = np.concatenate([[began_s], time_s[first]])
    at = np.flatnonzero(np.diff(times) < 0) if last >= 0 else np.flatnonzero(np.diff(times[1:]) < 0) + 1
    return np.stack([step[first[at]].astype(np.float64), times[at], times[at + 1]], axis=1), float(times[-1])


def _clocks_back(runs: Sequence[RunScan]) -> FloatArray:
    """Those of all runs, and between two of them."""
    found = [runs[0].clock_back]
    for before, after in itertools.pairwise(runs):
        if after.first_step != before.last_step and after.begins_s < before.step_began_s:
            found.append(np.array([[after.first_step, before.step_began_s, after.begins_s]]))
        found.append(after.clock_back)
    return np.concatenate(found)


def _warmup_notes(warmups: Sequence[int]) -> tuple[str, ...]:
    if not warmups:
        return ()
    place = "at the start" if len(warmups) == 1 else f"at the start of {len(warmups)} recordings"
    return (f"{sum(warmups)} warm-up tokens {place} (all tokens of a step with identical ids) are left out",)


def _lives(batch: TokenBatch) -> AnyArray:
    """int64[5, q]: id, first step, last step, workload of the first token, tokens; per request of the batch."""
    order = np.argsort(batch.request, kind="stable")
    ids = batch.request[order]
    starts = _starts(ids)
    ends = np.append(starts[1:], len(ids))
    step, workload = batch.step[order], batch.workload[order]
    return np.stack([ids[starts], step[starts], step[ends - 1], workload[starts], ends - starts]).astype(np.int64)


def _starts(ids: AnyArray) -> IntArray:
    """int64[…] where another number begins."""
    return np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))


def _merge(lives: Sequence[AnyArray]) -> AnyArray:
    """One column per request: earliest first step (and its workload), latest last step, summed tokens."""
    joined = np.concatenate([np.zeros((5, 0), np.int64), *lives], axis=1)
    if joined.shape[1] == 0:
        return joined
    ordered = joined[:, np.lexsort((joined[1], joined[0]))]
    starts = _starts(ordered[0])
    latest = np.maximum.reduceat(ordered[2], starts)
    total = np.add.reduceat(ordered[4], starts)
    return np.stack([ordered[0][starts], ordered[1][starts], latest, ordered[3][starts], total])
