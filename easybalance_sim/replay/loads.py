"""What every rank computes in every step and layer under one plan, for simulators that price a step by such numbers.

Tokens are followed one by one. Counts do not say which tokens came together: each window of a count trace stands for
one step, replicas share evenly, and the tokens that reach a rank are those of independent choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, IntArray, mixed, sealed
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import Dispatch
from easybalance_sim.replay.engine import Links, dispatched
from easybalance_sim.replay.expected import reached
from easybalance_sim.replay.tally import expert_sums, rank_sums
from easybalance_sim.trace.schema import PHASES, CountTrace, TokenBatch

MIXED = len(PHASES)
"""Phase code of a step with tokens of several phases."""
_CELLS = 1 << 22
PHASE_NAMES = (*PHASES, "mixed")


@dataclass(frozen=True, kw_only=True, eq=False)
class StepLoads:
    """Steps, or sums over the steps of windows, in order.

    step: int64[W] first step · steps: int64[W] · phase: int64[W] index into `PHASE_NAMES` · tokens: float64[W] ·
    assignments, local_tokens, activated, busiest: float64[W, L, R] (token, expert) pairs that a rank computes, distinct
    tokens that reach it, experts of it with a token, tokens of the busiest of those · expert_tokens: int64[w, L, E]
    assignments of those steps that `sampled` (bool[W]) names, none after windows were formed.
    """

    step: IntArray
    steps: IntArray
    phase: IntArray
    tokens: FloatArray
    assignments: FloatArray
    local_tokens: FloatArray
    activated: FloatArray
    busiest: FloatArray
    sampled: BoolArray
    expert_tokens: IntArray


SUMS = ("tokens", "assignments", "local_tokens", "activated", "busiest")
"""The fields that add up over steps."""


def step_loads(
    batches: Iterable[TokenBatch], plan: Plan, dispatch: Dispatch, route: Links, recorded_ranks: int, every: int = 1
) -> Iterator[StepLoads]:
    """Every step of a token trace, a few at a time; recorded_ranks as for `replay.engine.replay`, every: experts are
    counted in one of so many steps."""
    for batch, sent in dispatched(batches, plan, dispatch, route, recorded_ranks):
        first = batch.step_starts
        step = batch.step[first].astype(np.int64)
        sampled: BoolArray = mixed(step) % np.uint64(every) == 0
        yield StepLoads(
            step=step,
            steps=np.ones(len(first), np.int64),
            phase=_one_phase(batch.phase, first),
            tokens=np.diff(np.append(first, batch.tokens)).astype(np.float64),
            assignments=sent.rank_rows.astype(np.float64),
            local_tokens=sent.distinct.astype(np.float64),
            activated=rank_sums((sent.slot_tokens > 0).astype(np.int32), plan).astype(np.float64),
            busiest=_rank_most(sent.slot_tokens, plan).astype(np.float64),
            sampled=sampled,
            expert_tokens=expert_sums(sent.slot_tokens[sampled].astype(np.int64), plan),
        )


def window_loads(trace: CountTrace, kept: BoolArray, plan: Plan) -> Iterator[StepLoads]:
    """Expected loads of the windows that are kept (bool[W]) of a count trace, each as one step, a few at a time."""
    chosen = np.flatnonzero(kept)
    at_once = max(1, _CELLS // (plan.layers * plan.slots))
    for start in range(0, len(chosen), at_once):
        yield _expected(trace, chosen[start : start + at_once], plan)


def _expected(trace: CountTrace, rows: IntArray, plan: Plan) -> StepLoads:
    counts, tokens = trace.tokens[rows], trace.batch_tokens[rows].astype(np.float64)
    layer = np.arange(plan.layers)[:, None]
    slot_tokens = counts[:, layer, plan.expert_of_slot] / plan.replicas[layer, plan.expert_of_slot]
    assignments = rank_sums(slot_tokens, plan)
    return StepLoads(
        step=trace.window[rows].astype(np.int64),
        steps=np.ones(len(rows), np.int64),
        phase=trace.phase[rows].astype(np.int64),
        tokens=tokens,
        assignments=assignments,
        local_tokens=reached(assignments, tokens[:, None, None], trace.meta.top_k),
        activated=rank_sums(np.minimum(slot_tokens, 1), plan),
        busiest=_rank_most(slot_tokens, plan),
        sampled=np.ones(len(rows), np.bool_),
        expert_tokens=counts,
    )


class Windows:
    """Sums steps into windows of `steps` steps as they come; a window is handed on when the next one begins."""

    def __init__(self, steps: int) -> None:
        self._length = steps
        self._open: StepLoads | None = None

    def closed(self, later: StepLoads) -> StepLoads:
        """The windows that end before the last window of `later`, which may be none."""
        known = later if self._open is None else joined(self._open, later)
        windows = _summed(known, known.step // self._length)
        self._open = _rows(windows, slice(-1, None))
        return _rows(windows, slice(0, -1))

    def rest(self) -> StepLoads | None:
        """The last window, None when no step came."""
        return self._open


def joined(first: StepLoads, later: StepLoads) -> StepLoads:
    """One after the other."""
    names = StepLoads.__dataclass_fields__
    both = {name: np.concatenate([getattr(first, name), getattr(later, name)]) for name in names}
    return StepLoads(**both)


def _summed(loads: StepLoads, window: IntArray) -> StepLoads:
    starts = np.flatnonzero(np.diff(window, prepend=window[0] - 1))
    least, most = (ufunc.reduceat(loads.phase, starts) for ufunc in (np.minimum, np.maximum))
    return StepLoads(
        step=loads.step[starts],
        steps=np.add.reduceat(loads.steps, starts),
        phase=np.where(least == most, least, MIXED),
        sampled=np.zeros(len(starts), np.bool_),
        expert_tokens=loads.expert_tokens[:0],
        **{name: np.add.reduceat(getattr(loads, name), starts, axis=0) for name in SUMS},
    )


def _rows(loads: StepLoads, rows: slice) -> StepLoads:
    """Some of the windows."""
    return StepLoads(
        step=loads.step[rows],
        steps=loads.steps[rows],
        phase=loads.phase[rows],
        sampled=loads.sampled[rows],
        expert_tokens=loads.expert_tokens,
        **{name: getattr(loads, name)[rows] for name in SUMS},
    )


def _one_phase(phase: AnyArray, first: IntArray) -> IntArray:
    least, most = (ufunc.reduceat(phase, first) for ufunc in (np.minimum, np.maximum))
    return np.where(least == most, least, MIXED).astype(np.int64)


def _rank_most(slot_values: AnyArray, plan: Plan) -> AnyArray:
    """[…, R] the largest over the slots of each rank of values [..., P]."""
    return sealed(np.maximum.reduceat(slot_values, plan.slot_start[:-1], axis=-1))
