"""One light pass over a token trace: totals, and the life of every request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import AnyArray, Int16Array, Int32Array, IntArray, frozen
from easybalance_sim.trace.schema import PHASES, TokenBatch

_MERGE_EVERY = 64
"""Batches whose requests are held apart: with requests that live long, more would make memory grow with the trace."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceScan:
    """What a pass over the light columns of a token trace finds.

    tokens, steps: totals · first_step, last_step · request: int64[Q] sorted ids · request_first, request_last:
    int32[Q] steps · request_workload: int16[Q] of its first token · request_tokens: int64[Q] ·
    phase_tokens: int64[3] by phase code · workload_tokens: int64[n] by workload code · max_source: highest source rank,
    -1 = none known · has_time: all rows carry seconds · notes: lines for the user.
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
    notes: tuple[str, ...] = field(default=())

    @property
    def requests(self) -> int:
        """Q."""
        return len(self.request)


def scan_batches(batches: Iterable[TokenBatch], warmup: int) -> TraceScan:
    """Scan the batches of one trace; `warmup` is the number of tokens already left out."""
    tokens = steps = 0
    first = last = max_source = -1
    has_time = True
    phases, workloads = np.zeros(len(PHASES), np.int64), np.zeros(0, np.int64)
    lives: list[AnyArray] = []
    for batch in batches:
        if first < 0:
            first = int(batch.step[0])
        tokens += batch.tokens
        steps += int(np.count_nonzero(np.diff(batch.step))) + 1
        last, max_source = int(batch.step[-1]), max(max_source, int(batch.source_rank.max()))
        has_time &= batch.time_s is not None
        phases += np.bincount(batch.phase, minlength=len(PHASES))
        seen = np.bincount(batch.workload)
        workloads = np.pad(workloads, (0, max(0, len(seen) - len(workloads))))
        workloads[: len(seen)] += seen
        lives.append(_lives(batch))
        if len(lives) > _MERGE_EVERY:
            lives = [_merge(lives)]
    lifetime = _merge(lives)
    note = (f"{warmup} warm-up tokens at the start (all tokens of a step with identical ids) are left out",)
    return TraceScan(
        tokens=tokens,
        steps=steps,
        first_step=first,
        last_step=last,
        request=frozen(lifetime[0]),
        request_first=frozen(lifetime[1], np.int32),
        request_last=frozen(lifetime[2], np.int32),
        request_workload=frozen(lifetime[3], np.int16),
        request_tokens=frozen(lifetime[4]),
        phase_tokens=frozen(phases),
        workload_tokens=frozen(workloads),
        max_source=max_source,
        has_time=has_time and tokens > 0,
        notes=note if warmup else (),
    )


def _lives(batch: TokenBatch) -> AnyArray:
    """int64[5, q]: id, first step, last step, workload of the first token, tokens; per request of the batch."""
    order = np.argsort(batch.request, kind="stable")
    ids = batch.request[order]
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    ends = np.append(starts[1:], len(ids))
    step, workload = batch.step[order], batch.workload[order]
    return np.stack([ids[starts], step[starts], step[ends - 1], workload[starts], ends - starts]).astype(np.int64)


def _merge(lives: Sequence[AnyArray]) -> AnyArray:
    """One column per request: earliest first step (and its workload), latest last step, summed tokens."""
    joined = np.concatenate([np.zeros((5, 0), np.int64), *lives], axis=1)
    if joined.shape[1] == 0:
        return joined
    ordered = joined[:, np.lexsort((joined[1], joined[0]))]
    starts = np.flatnonzero(np.diff(ordered[0], prepend=ordered[0][0] - 1))
    latest = np.maximum.reduceat(ordered[2], starts)
    total = np.add.reduceat(ordered[4], starts)
    return np.stack([ordered[0][starts], ordered[1][starts], latest, ordered[3][starts], total])
