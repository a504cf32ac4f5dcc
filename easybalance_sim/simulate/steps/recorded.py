"""`RecordedSteps`: consecutive steps of a token trace held in memory, with the scores by which experts were chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int16Array, Int32Array, IntArray, frozen, sealed
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.load.selection import Selection
from easybalance_sim.plan.plan import Plan
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import TokenBatch, TraceMeta, joined_batches

MOST_BYTES = 4 << 30
"""Of ids, gates and scores that are held at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedSteps:
    """S consecutive steps of T tokens. Steps in which nothing runs are not there.

    meta: of the trace · step: int64[S] ids · start: int64[S+1] first token of each step, then T · experts:
    uint8|uint16[T, L, K] · gates: float16[T, L, K] or None · scores: [T, L, E] as recorded (`meta.all_scores` says how
    to read them) or None · runner_up: uint8|uint16[T, L, M] and runner_up_scores: float16[T, L, M], or None ·
    selection_scores: float16[T, L, K] those of the chosen experts, or None ·
    request: int64[T] · position: int32[T] · phase: uint8[T] · workload: int16[T] index into `workloads` ·
    source_rank: int16[T], -1 unknown · step_s: seconds from one step to the next.
    """

    meta: TraceMeta
    step: IntArray
    start: IntArray
    experts: AnyArray
    request: IntArray
    position: Int32Array
    phase: AnyArray
    workload: Int16Array
    source_rank: Int16Array
    workloads: tuple[str, ...]
    gates: AnyArray | None = None
    scores: AnyArray | None = None
    runner_up: AnyArray | None = None
    runner_up_scores: AnyArray | None = None
    selection_scores: AnyArray | None = None
    step_s: float = 0.025

    def __len__(self) -> int:
        return len(self.step)

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.experts)

    @property
    def layers(self) -> int:
        """L."""
        return int(self.experts.shape[1])

    @property
    def step_of_token(self) -> IntArray:
        """int64[T] place of each token's step among these steps (not its id)."""
        places: IntArray = np.repeat(np.arange(len(self)), np.diff(self.start))
        return places

    @cached_property
    def counts(self) -> Int32Array:
        """int32[S, L, E] assignments of every step."""
        return expert_counts(self.experts, self.start, self.meta.experts)

    def between(self, first: int, end: int) -> RecordedSteps:
        """The steps in places first..end-1, nothing copied."""
        a, b = int(self.start[first]), int(self.start[end])
        by_token: dict[str, Any] = {
            field.name: value[a:b]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), np.ndarray) and field.name not in ("step", "start")
        }
        start = frozen(self.start[first : end + 1] - a, np.int64)
        return replace(self, step=self.step[first:end], start=start, **by_token)


def expert_counts(experts: AnyArray, start: IntArray, n_experts: int) -> Int32Array:
    """int32[S, L, E] assignments of experts [T, L, K] in steps that begin at start int64[S+1]."""
    steps, layers = len(start) - 1, experts.shape[1]
    out = np.zeros((steps, layers, n_experts), np.int32)
    row = np.repeat(np.arange(steps), np.diff(start)) * n_experts
    for layer in range(layers):
        flat = (row[:, None] + experts[:, layer]).ravel()
        out[:, layer] = np.bincount(flat, minlength=steps * n_experts).reshape(steps, n_experts)
    return sealed(out)


def rank_loads(counts: AnyArray, plan: Plan) -> FloatArray:
    """float64[S, L, R] assignments of each rank when an expert's replicas share evenly; counts: [S, L, E]."""
    out = np.zeros((len(counts), plan.layers, plan.ranks))
    for layer in range(plan.layers):
        share = np.zeros((plan.experts, plan.ranks))
        ids = plan.expert_of_slot[layer]
        np.add.at(share, (ids, plan.rank_of_slot), 1.0 / plan.replicas[layer, ids])
        out[:, layer] = counts[:, layer] @ share
    return sealed(out)


def sources(steps: RecordedSteps, ranks: int) -> IntArray:
    """int64[T] rank that a token comes from: the recorded one when as many ranks were recorded, else request mod R."""
    by_request: IntArray = steps.request % ranks
    if steps.meta.ranks != ranks:
        return by_request
    known = (steps.source_rank >= 0) & (steps.source_rank < ranks)
    return np.where(known, steps.source_rank, by_request).astype(np.int64)


def read_steps(
    trace: TokenTrace,
    selection: Selection | None = None,
    *,
    first: int = 0,
    end: int | None = None,
    gates: bool = True,
    scores: bool = True,
    most_bytes: int = MOST_BYTES,
    step_s: float | None = None,
) -> tuple[RecordedSteps, tuple[str, ...]]:
    """The steps with ids first..end-1 of a trace (end None = to its last) and notes for the user.

    selection: tokens that take part, None = all; a step is what is left of it.
    What would need more than `most_bytes` is cut off behind the last step that fits, with a note. step_s: seconds per
    step; None = what the trace's times say, 25 ms without times. Raises `UsageError` when no step is in the range,
    `TraceError` for an unusable trace.
    """
    parts: list[TokenBatch] = []
    notes: list[str] = []
    held = 0
    batches = trace.batches(gates=gates, scores=scores)
    chosen = batches if selection is None else selection.of(batches)
    for part in in_range(chosen, first, end):
        size = sum(c.nbytes for c in (part.experts, part.gates, part.all_scores, part.runner_up) if c is not None)
        if held + size > most_bytes and parts:
            notes.append(f"only steps {parts[0].step[0]}–{parts[-1].step[-1]} are used: more do not fit in memory")
            break
        parts.append(part)
        held += size
    if not parts:
        upper = "the last" if end is None else str(end - 1)
        raise UsageError(f"no step from {first} to {upper}", where=str(trace.paths[0]), fix="choose another range")
    whole = joined_batches(parts)
    return _held(trace, whole, step_s), tuple(notes)


def in_range(batches: Iterable[TokenBatch], first: int, end: int | None) -> Iterator[TokenBatch]:
    """The tokens of steps with ids first..end-1, end None = to the last."""
    for batch in batches:
        low = int(np.searchsorted(batch.step, first))
        high = batch.tokens if end is None else int(np.searchsorted(batch.step, end))
        if low < high:
            yield batch if (low, high) == (0, batch.tokens) else batch.select(slice(low, high))
        if end is not None and high < batch.tokens:
            return


def _held(trace: TokenTrace, batch: TokenBatch, step_s: float | None) -> RecordedSteps:
    starts = batch.step_starts
    return RecordedSteps(
        meta=trace.meta,
        step=frozen(batch.step[starts], np.int64),
        start=frozen(np.append(starts, batch.tokens), np.int64),
        experts=batch.experts,
        gates=batch.gates,
        scores=batch.all_scores,
        runner_up=batch.runner_up,
        runner_up_scores=batch.runner_up_scores,
        selection_scores=batch.selection_scores,
        request=batch.request,
        position=batch.position,
        phase=batch.phase,
        workload=batch.workload,
        source_rank=batch.source_rank,
        workloads=trace.workloads,
        step_s=_step_seconds(batch, starts) if step_s is None else step_s,
    )


def _step_seconds(batch: TokenBatch, starts: IntArray) -> float:
    """Median seconds from one step to the next."""
    if batch.time_s is None or len(starts) < 2:
        return RecordedSteps.step_s
    apart = np.diff(batch.time_s[starts]) / np.diff(batch.step[starts])
    typical = float(np.median(apart))
    return typical if typical > 0 else RecordedSteps.step_s


def require_scores(steps: RecordedSteps) -> None:
    """Raise `TraceError` for a trace from which another choice of experts cannot be told."""
    if steps.scores is None and steps.runner_up_scores is None:
        raise TraceError(
            "the trace holds no scores to choose experts by",
            where="column all_scores",
            fix="record with all_scores (docs/recording.md)",
        )
