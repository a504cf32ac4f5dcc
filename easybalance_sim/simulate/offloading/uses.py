"""Which experts the steps of a trace use, and the steps again with other requests side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, Int32Array, IntArray, frozen, sealed
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.steps.recorded import RecordedSteps, expert_counts
from easybalance_sim.trace.batching import schedule

COUNTS_AT_ONCE = 1 << 23
BY_TOKEN = ("experts", "request", "position", "phase", "workload", "source_rank")


@dataclass(frozen=True, kw_only=True, eq=False)
class Uses:
    """Distinct experts of every layer of every step.

    A use is an item = layer · E + expert that position p = step · L + layer needs, at least one each. start: int64[P+1]
    first use of each position, then A · item: int32[A], rising within a position · tokens: int32[A] that chose it.
    """

    layers: int
    experts: int
    start: IntArray
    item: Int32Array
    tokens: Int32Array

    @property
    def positions(self) -> int:
        """P."""
        return len(self.start) - 1

    @property
    def steps(self) -> int:
        """Steps."""
        return self.positions // self.layers

    @property
    def items(self) -> int:
        """L · E."""
        return self.layers * self.experts

    @property
    def position(self) -> IntArray:
        """int64[A] position of each use."""
        places: IntArray = np.repeat(np.arange(self.positions), np.diff(self.start))
        return places

    @cached_property
    def presence(self) -> BoolArray:
        """bool[S, L, E] where a step's layer needs an expert."""
        there = np.zeros((self.steps, self.items), np.bool_)
        there[self.position // self.layers, self.item] = True
        return sealed(there.reshape(self.steps, self.layers, self.experts))


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """Past and judged steps of one trace. ended: bool[T] tokens of the past whose request is over when the judged
    steps begin: all that may be learned from."""

    past: RecordedSteps
    judged: RecordedSteps
    ended: BoolArray

    def frequency(self) -> FloatArray:
        """float64[L·E] assignments of ended requests by item."""
        layers, experts = self.past.layers, self.past.meta.experts
        items = self.past.experts[self.ended] + np.arange(layers)[:, None] * experts
        return np.bincount(items.ravel(), minlength=layers * experts).astype(np.float64)


def uses_of(steps: RecordedSteps) -> Uses:
    """The uses of recorded steps."""
    layers, experts = steps.layers, steps.meta.experts
    items, tokens, each = [], [], []
    for first, end in _blocks(steps):
        counts = _counts(steps, first, end).reshape(-1, experts)
        place, expert = np.nonzero(counts)
        items.append(place % layers * experts + expert)
        tokens.append(counts[place, expert])
        each.append(np.count_nonzero(counts, axis=1))
    return Uses(
        layers=layers,
        experts=experts,
        start=frozen(np.concatenate([[0], np.cumsum(np.concatenate(each))]), np.int64),
        item=frozen(np.concatenate(items), np.int32),
        tokens=frozen(np.concatenate(tokens), np.int32),
    )


def expert_seconds(steps: RecordedSteps, cost: LayerCost) -> FloatArray:
    """float64[P] seconds of the experts of every layer of every step on one GPU that holds them all."""
    parts = []
    for first, end in _blocks(steps):
        counts = _counts(steps, first, end)
        size = np.diff(steps.start[first : end + 1])[:, None, None]
        distinct = frozen(np.broadcast_to(size, (*counts.shape[:2], 1)), np.int32)
        none = frozen(np.zeros_like(distinct))
        parts.append(cost.seconds(counts, distinct, none, none).expert.ravel())
    return sealed(np.concatenate(parts))


def sides(steps: RecordedSteps, held_out: float) -> Sides:
    """The last `held_out` of the steps are judged, the others are past. Raises `UsageError` when either is empty."""
    boundary = round(len(steps) * (1 - held_out))
    if not 0 < boundary < len(steps):
        raise UsageError(f"{len(steps)} steps have no past and judged part", where="--held-out", fix="give more steps")
    past, judged = steps.between(0, boundary), steps.between(boundary, len(steps))
    return Sides(past=past, judged=judged, ended=sealed(~np.isin(past.request, judged.request)))


def requeued(steps: RecordedSteps, at_once: int) -> RecordedSteps:
    """The requests again in the order in which they came, `at_once` at a time, each at its own pace (its prefill stays
    a burst) and without gaps. Steps after the queue has run out are left out.

    Raises `UsageError` when there are fewer requests than that.
    """
    place = steps.step_of_token
    request, number = np.unique(steps.request, return_inverse=True)
    if len(request) < at_once:
        raise UsageError(f"the trace has {len(request)} requests", where=f"--batch {at_once}", fix="give fewer")
    first, last = np.full(len(request), len(steps)), np.full(len(request), -1)
    np.minimum.at(first, number, place)
    np.maximum.at(last, number, place)
    order = np.argsort(first, kind="stable")
    queue = schedule((last - first + 1)[order], at_once)
    shift = np.empty(len(request), np.int64)
    shift[order] = queue.start - first[order]
    step = place + shift[number]
    token = np.flatnonzero(step < queue.full_until)
    token = token[np.argsort(step[token], kind="stable")]
    if not len(token):
        raise UsageError("no step has as many requests", where=f"--batch {at_once}", fix="give fewer")
    ids, start = np.unique(step[token], return_index=True)
    by_token: dict[str, Any] = {name: frozen(getattr(steps, name)[token]) for name in BY_TOKEN}
    return replace(
        steps, step=frozen(ids, np.int64), start=frozen(np.append(start, len(token)), np.int64), gates=None,
        scores=None, runner_up=None, runner_up_scores=None, selection_scores=None, **by_token,
    )  # fmt: skip


def _blocks(steps: RecordedSteps) -> list[tuple[int, int]]:
    size = max(1, COUNTS_AT_ONCE // (steps.layers * steps.meta.experts))
    return [(first, min(first + size, len(steps))) for first in range(0, len(steps), size)]


def _counts(steps: RecordedSteps, first: int, end: int) -> Int32Array:
    start = steps.start[first : end + 1]
    return expert_counts(steps.experts[start[0] : start[-1]], start - start[0], steps.meta.experts)
