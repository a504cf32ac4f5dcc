"""Adds up replayed steps: imbalance per window, seconds per step, bytes per pair; shards merge by `+` of sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, IntArray
from easybalance_sim.cost.layer import LayerSeconds
from easybalance_sim.plan.bounds import window_bound
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.outcome import Outcome


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBlock:
    """Replayed steps of one plan.

    window: int64[W] window of each step · tokens: int64[W] · slot_tokens: int32[W, L, P] assignments · seconds: per
    step and layer · rank_pairs: int64[R, R], node_pairs: int64[N, N] copies.
    """

    window: IntArray
    tokens: IntArray
    slot_tokens: Int32Array
    seconds: LayerSeconds
    rank_pairs: IntArray
    node_pairs: IntArray


class Tally:
    """What a plan did over all steps added so far; speed: float64[R] of the ranks, None = equal."""

    def __init__(self, plan: Plan, speed: FloatArray | None = None) -> None:
        self.plan, self.speed = plan, speed
        self.tokens = self.steps = 0
        self.rank_pairs: IntArray = np.zeros((plan.ranks, plan.ranks), np.int64)
        self.node_pairs: IntArray = np.zeros((0, 0), np.int64)
        self.slot_tokens: IntArray = np.zeros((plan.layers, plan.slots), np.int64)
        self._open: _Windows | None = None
        self._ratios: list[FloatArray] = []
        self._bounds: list[FloatArray] = []
        self._window_steps: list[IntArray] = []
        self._total = [np.zeros((0, plan.layers), np.float32)]
        self._active: IntArray = np.zeros(int(plan.slots_per_rank.max()) + 1, np.int64)
        self._parts = np.zeros(3)

    def add(self, block: StepBlock) -> None:
        """Add a block; blocks must come in step order."""
        self.tokens += int(block.tokens.sum())
        self.steps += len(block.tokens)
        self.rank_pairs = self.rank_pairs + block.rank_pairs
        self.node_pairs = block.node_pairs + (self.node_pairs if self.node_pairs.size else 0)
        seconds = block.seconds
        self._total.append(seconds.total.astype(np.float32))
        self._active += np.bincount(seconds.active.ravel(), minlength=len(self._active))
        self._parts += [float(seconds.dispatch.sum()), float(seconds.expert.sum()), float(seconds.combine.sum())]
        self._add_windows(block)

    def outcome(self, copy_bytes: float) -> Outcome:
        """Everything so far as a value; copy_bytes: bytes of one copy, dispatch + combine."""
        ratios, bounds = self._by_window()
        return Outcome(
            plan=self.plan,
            tokens=self.tokens,
            steps=self.steps,
            tokens_per_step=self.tokens / max(self.steps, 1),
            window_imbalance=ratios,
            window_bound=bounds,
            layer_seconds=np.concatenate(self._total),
            active_slots=self._active,
            phase_share=self._parts / max(self._parts.sum(), 1e-300),
            expert_tokens=expert_sums(self.slot_tokens, self.plan),
            rank_pairs=self.rank_pairs,
            node_pairs=self.node_pairs,
            copy_bytes=copy_bytes,
            speed=self.speed,
        )

    def _by_window(self) -> tuple[FloatArray, FloatArray]:
        """float64[w, L] imbalance per window and layer, and what no plan goes below; a last window cut short is left
        out if others exist, layers without traffic are NaN."""
        last = [] if self._open is None else [self._open]
        empty = np.zeros((0, self.plan.layers))
        ratios = np.concatenate([empty, *self._ratios, *(self._imbalance(one) for one in last)])
        bounds = np.concatenate([empty, *self._bounds, *(self._bound(one) for one in last)])
        steps = np.concatenate([np.zeros(0, np.int64), *self._window_steps, *(one.steps for one in last)])
        whole = slice(0, -1) if len(steps) > 1 and steps[-1] < steps.max() else slice(None)
        return ratios[whole], bounds[whole]

    def _add_windows(self, block: StepBlock) -> None:
        added = _Windows.of(block)
        self.slot_tokens = self.slot_tokens + added.slot_tokens.sum(axis=0)
        known = added if self._open is None else self._open.then(added)
        closed, self._open = known.closed(), known.last()
        if len(closed.ids):
            self._ratios.append(self._imbalance(closed))
            self._bounds.append(self._bound(closed))
            self._window_steps.append(closed.steps)

    def _imbalance(self, windows: _Windows) -> FloatArray:
        return imbalance(rank_sums(windows.slot_tokens, self.plan), self.speed)

    def _bound(self, windows: _Windows) -> FloatArray:
        return window_bound(expert_sums(windows.slot_tokens, self.plan), self.plan.slots_per_rank, self.speed)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Windows:
    """Consecutive windows. ids, steps: int64[w] · slot_tokens: int64[w, L, P] assignments."""

    ids: IntArray
    steps: IntArray
    slot_tokens: IntArray

    @classmethod
    def of(cls, block: StepBlock) -> _Windows:
        starts = np.flatnonzero(np.diff(block.window, prepend=block.window[0] - 1))
        return cls(
            ids=block.window[starts],
            steps=np.diff(np.append(starts, len(block.window))),
            slot_tokens=np.add.reduceat(block.slot_tokens, starts, axis=0, dtype=np.int64),
        )

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

    def closed(self) -> _Windows:
        """All but the last, which may go on."""
        return _Windows(ids=self.ids[:-1], steps=self.steps[:-1], slot_tokens=self.slot_tokens[:-1])

    def last(self) -> _Windows:
        """The last one; a copy, so that the others can be forgotten."""
        return _Windows(ids=self.ids[-1:], steps=self.steps[-1:], slot_tokens=self.slot_tokens[-1:].copy())


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
