"""Adds up replayed steps: imbalance per window, seconds per step, bytes per pair; parts of a trace join in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int16Array, Int32Array, IntArray, mixed
from easybalance_sim.cost.layer import LayerSeconds
from easybalance_sim.cost.memory_peak import Peak
from easybalance_sim.plan.bounds import window_bound
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.outcome import Outcome, WindowMarks

MOST_SECONDS = 1 << 21
"""Pairs of step and layer whose seconds are kept; of more steps a random sample stays."""
PICOSECONDS = 1e12


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBlock:
    """Replayed steps of one plan.

    step, window: int64[W] · tokens: int64[W] · slot_tokens: int32[W, L, P] assignments · seconds: per step and layer ·
    rank_pairs: int64[R, R], node_pairs: int64[N, N] copies · peak: over these steps.
    """

    step: IntArray
    window: IntArray
    tokens: IntArray
    slot_tokens: Int32Array
    seconds: LayerSeconds
    rank_pairs: IntArray
    node_pairs: IntArray
    peak: Peak


class Tally:
    """What a plan did over all steps added so far; speed: float64[R] of the ranks, None = equal.

    Everything that is summed is whole numbers, so that the outcome does not depend on where a trace was cut into parts.
    """

    def __init__(self, plan: Plan, speed: FloatArray | None = None) -> None:
        self.plan, self.speed = plan, speed
        self.tokens = self.steps = 0
        self.peak = Peak()
        self.rank_pairs: IntArray = np.zeros((plan.ranks, plan.ranks), np.int64)
        self.node_pairs: IntArray = np.zeros((0, 0), np.int64)
        self.slot_tokens: IntArray = np.zeros((plan.layers, plan.slots), np.int64)
        self._ratios = _Ratios(plan, speed)
        self._seconds = _Seconds(plan.layers)
        self._active: IntArray = np.zeros(int(plan.slots_per_rank.max()) + 1, np.int64)
        self._parts: IntArray = np.zeros(3, np.int64)

    def add(self, block: StepBlock) -> None:
        """Add a block; blocks must come in step order."""
        windows, seconds = _Windows.of(block), block.seconds
        self._ratios.add(windows)
        kinds = np.stack([seconds.ranked, seconds.overlapped, seconds.serial], axis=-1)
        self._seconds.add(block.step, kinds.astype(np.float32))
        parts = [_picoseconds(part) for part in (seconds.dispatch, seconds.expert, seconds.combine)]
        active = _histogram(seconds.active, len(self._active))
        slot_tokens = windows.slot_tokens.sum(axis=0)
        self._count(int(block.tokens.sum()), len(block.tokens), slot_tokens, active, np.array(parts, np.int64))
        self._count_pairs(block.rank_pairs, block.node_pairs)
        self.peak = self.peak.joined(block.peak)

    def extend(self, later: Tally) -> None:
        """Add the steps of another tally of the same plan, all of which come later."""
        self._ratios.extend(later._ratios)
        self._seconds.extend(later._seconds)
        self._count(later.tokens, later.steps, later.slot_tokens, later._active, later._parts)
        self._count_pairs(later.rank_pairs, later.node_pairs)
        self.peak = self.peak.joined(later.peak)

    def outcome(self, copy_bytes: float) -> Outcome:
        """Everything so far as a value; copy_bytes: bytes of one copy, dispatch + combine."""
        marks, ratios, bounds = self._ratios.by_window()
        kept = self._seconds.kept()
        return Outcome(
            plan=self.plan,
            tokens=self.tokens,
            steps=self.steps,
            tokens_per_step=self.tokens / max(self.steps, 1),
            window_imbalance=ratios,
            window_marks=marks,
            window_bound=bounds,
            layer_seconds=kept[..., 0],
            layer_bracket=kept[..., 1:],
            active_slots=self._active,
            phase_share=self._parts / max(int(self._parts.sum()), 1),
            expert_tokens=expert_sums(self.slot_tokens, self.plan),
            slot_tokens=self.slot_tokens,
            rank_pairs=self.rank_pairs,
            node_pairs=self.node_pairs,
            copy_bytes=copy_bytes,
            peak=self.peak,
            speed=self.speed,
        )

    def _count(self, tokens: int, steps: int, slot_tokens: IntArray, active: IntArray, parts: IntArray) -> None:
        self.tokens += tokens
        self.steps += steps
        self.slot_tokens = self.slot_tokens + slot_tokens
        self._active = self._active + active
        self._parts = self._parts + parts

    def _count_pairs(self, rank_pairs: IntArray, node_pairs: IntArray) -> None:
        self.rank_pairs = self.rank_pairs + rank_pairs
        if node_pairs.size:
            self.node_pairs = node_pairs + (self.node_pairs if self.node_pairs.size else 0)


class _Seconds:
    """Seconds of steps and layers, of all steps while they are few. Of more, those stay whose number hashes low: a
    choice that has no rhythm and that every part of a trace makes alike."""

    def __init__(self, layers: int) -> None:
        self._most = max(1, MOST_SECONDS // layers)
        self._parts = [np.zeros((0, layers, 3), np.float32)]
        self._steps: list[IntArray] = [np.zeros(0, np.int64)]
        self._halvings = self._count = 0

    def add(self, step: IntArray, seconds: AnyArray) -> None:
        """step: int64[W] · seconds: float32[W, L, 3]: ranked, with full overlap, serial."""
        stay = mixed(step) >> np.uint64(64 - self._halvings) == 0 if self._halvings else slice(None)
        self._steps.append(step[stay])
        self._parts.append(seconds[stay])
        self._count += len(self._steps[-1])
        while self._count > self._most:
            self._halvings += 1
            self._thin()

    def extend(self, later: _Seconds) -> None:
        if later._halvings > self._halvings:
            self._halvings = later._halvings
            self._thin()
        for step, seconds in zip(later._steps, later._parts, strict=True):
            self.add(step, seconds)

    def kept(self) -> AnyArray:
        """float32[W, L, 3] in order of the steps."""
        return np.concatenate(self._parts)

    def _thin(self) -> None:
        steps, seconds = np.concatenate(self._steps), np.concatenate(self._parts)
        stay = mixed(steps) >> np.uint64(64 - self._halvings) == 0
        self._steps, self._parts = [steps[stay]], [seconds[stay]]
        self._count = len(self._steps[0])


class _Ratios:
    """Imbalance and bound per window. The first and the last window stay open: the parts before and behind may have
    more of them."""

    def __init__(self, plan: Plan, speed: FloatArray | None) -> None:
        self._plan, self._speed = plan, speed
        self._first: _Windows | None = None
        self._last: _Windows | None = None
        self._closed = _Closed.none(plan.layers)

    def add(self, windows: _Windows) -> None:
        """Windows behind those known; the first may be the last one known."""
        known = windows if self._last is None else self._last.then(windows)
        if self._first is None and len(known.ids) > 1:
            self._first, known = known.part(slice(0, 1)), known.part(slice(1, None))
        self._closed.append(self._judged(known.part(slice(0, -1))))
        self._last = known.part(slice(-1, None))

    def extend(self, later: _Ratios) -> None:
        """Everything of a later part."""
        if later._last is None:
            return
        if later._first is None:
            self.add(later._last)
            return
        self.add(later._first)
        if self._first is None:
            self._first = self._last
        elif self._last is not None:
            self._closed.append(self._judged(self._last))
        self._closed.append(later._closed)
        self._last = later._last

    def by_window(self) -> tuple[WindowMarks, FloatArray, FloatArray]:
        """The windows, float64[w, L] imbalance per window and layer, and what no plan goes below; a last window cut
        short is left out if others exist, layers without traffic are NaN."""
        every = _Closed.none(self._plan.layers)
        every.append(self._judged(self._first))
        every.append(self._closed)
        every.append(self._judged(self._last))
        ids, steps, assignments, ratios, bounds = every.joined()
        whole = slice(0, -1) if len(steps) > 1 and steps[-1] < steps.max() else slice(None)
        return (
            WindowMarks(ids=ids[whole], steps=steps[whole], assignments=assignments[whole]),
            ratios[whole],
            bounds[whole],
        )

    def _judged(self, windows: _Windows | None) -> _Closed:
        found = _Closed.none(self._plan.layers)
        if windows is not None and len(windows.ids):
            found.ids.append(windows.ids)
            found.steps.append(windows.steps)
            found.assignments.append(windows.slot_tokens.sum(axis=2).max(axis=1))
            found.ratios.append(imbalance(rank_sums(windows.slot_tokens, self._plan), self._speed))
            experts = expert_sums(windows.slot_tokens, self._plan)
            found.bounds.append(window_bound(experts, self._plan.slots_per_rank, self._speed))
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class _Closed:
    """Windows to which nothing is added any more. ids, steps, assignments: int64[w] as of `WindowMarks` ·
    ratios, bounds: float64[w, L]; in pieces."""

    ids: list[IntArray]
    steps: list[IntArray]
    assignments: list[IntArray]
    ratios: list[FloatArray]
    bounds: list[FloatArray]

    @classmethod
    def none(cls, layers: int) -> _Closed:
        empty, none = np.zeros((0, layers)), np.zeros(0, np.int64)
        return cls(ids=[none], steps=[none], assignments=[none], ratios=[empty], bounds=[empty])

    def append(self, later: _Closed) -> None:
        """These and later ones."""
        self.ids.extend(later.ids)
        self.steps.extend(later.steps)
        self.assignments.extend(later.assignments)
        self.ratios.extend(later.ratios)
        self.bounds.extend(later.bounds)

    def joined(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
        """ids, steps, assignments, ratios and bounds in one piece each."""
        ids, steps, assignments = map(np.concatenate, (self.ids, self.steps, self.assignments))
        return ids, steps, assignments, np.concatenate(self.ratios), np.concatenate(self.bounds)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Windows:
    """Consecutive windows. ids, steps: int64[w] · slot_tokens: int64[w, L, P] assignments."""

    ids: IntArray
    steps: IntArray
    slot_tokens: IntArray

    @classmethod
    def of(cls, block: StepBlock) -> _Windows:
        starts = np.flatnonzero(np.diff(block.window, prepend=block.window[0] - 1))
        steps = np.diff(np.append(starts, len(block.window)))
        small = block.peak.slot_rows * int(steps.max()) <= np.iinfo(np.int32).max
        sums = _window_sums(block.slot_tokens, starts, steps) if small else None
        if sums is None:
            sums = np.add.reduceat(block.slot_tokens, starts, axis=0, dtype=np.int64)
        return cls(ids=block.window[starts], steps=steps, slot_tokens=sums.astype(np.int64))

    def then(self, later: _Windows) -> _Windows:
        """This one window and those that follow; the first of those may be its continuation."""
        if self.ids[0] != later.ids[0]:
            both = (self, later)
            return _Windows(
                ids=np.concatenate([one.ids for one in both]),
                steps=np.concatenate([one.steps for one in both]),
                slot_tokens=np.concatenate([one.slot_tokens for one in both]),
            )
        steps, slot_tokens = later.steps.copy(), later.slot_tokens.copy()
        steps[0] += self.steps[0]
        slot_tokens[0] += self.slot_tokens[0]
        return _Windows(ids=later.ids, steps=steps, slot_tokens=slot_tokens)

    def part(self, rows: slice) -> _Windows:
        """Some of them; a copy, so that the others can be forgotten."""
        return _Windows(ids=self.ids[rows], steps=self.steps[rows], slot_tokens=self.slot_tokens[rows].copy())


def _window_sums(values: Int32Array, starts: IntArray, steps: IntArray) -> Int32Array | None:
    """int32[w, …] sums of the steps of each window where all but the first and the last are equally long, else None:
    ten times as fast as sums over runs of any length."""
    inner = steps[1:-1]
    if not len(inner) or (inner != inner[0]).any():
        return None
    first, last = int(starts[1]), int(starts[-1])
    middle = values[first:last].reshape(len(inner), int(inner[0]), *values.shape[1:])
    ends = [np.add.reduce(part, axis=0, dtype=np.int32)[None] for part in (values[:first], values[last:])]
    return np.concatenate([ends[0], np.einsum("ws...->w...", middle), ends[1]])


def _histogram(active: Int16Array, length: int) -> IntArray:
    """int64[length] how often each number of slots occurs; where they are few a pass for each is faster."""
    if length > 32:
        return np.bincount(active.ravel(), minlength=length)
    return np.array([np.count_nonzero(active == slots) for slots in range(length)], np.int64)


def _picoseconds(seconds: FloatArray) -> int:
    """Sum in whole picoseconds."""
    return int(np.rint(seconds * PICOSECONDS).astype(np.int64).sum())


def rank_sums(slot_values: AnyArray, plan: Plan) -> AnyArray:
    """[…, R] sums over the slots of each rank of values [..., P]."""
    sums: AnyArray = np.add.reduceat(slot_values, plan.slot_start[:-1], axis=-1)
    return sums


def expert_sums(slot_values: AnyArray, plan: Plan) -> AnyArray:
    """[…, L, E] sums over the replicas of each expert of values [..., L, P]."""
    lead, per_layer = slot_values.shape[:-2], plan.slots * np.arange(plan.layers)[:, None]
    order, starts = plan.replica_slot + per_layer, plan.replica_start[:, :-1] + per_layer
    by_expert = slot_values.reshape(*lead, plan.layers * plan.slots)[..., order.ravel()]
    sums: AnyArray = np.add.reduceat(by_expert, starts.ravel(), axis=-1).reshape(*lead, plan.layers, plan.experts)
    return sums


def imbalance(rank_tokens: AnyArray, speed: FloatArray | None = None) -> FloatArray:
    """float64[...] largest tokens / speed over the last axis (ranks), in units of total tokens / total speed; NaN where
    there is no traffic.

    speed: float64[R]; equal speeds, or None, make it max / mean of the tokens.
    """
    mean = rank_tokens.mean(axis=-1)
    # Tokens stay whole numbers where ranks are equally fast.
    paced = rank_tokens if speed is None or not np.ptp(speed) else rank_tokens * (speed.mean() / speed)
    ratio: FloatArray = np.divide(paced.max(axis=-1), mean, out=np.full(mean.shape, np.nan), where=mean > 0)
    return ratio
