"""Adds up replayed steps: imbalance per window, seconds per step, bytes per pair; shards merge by `+` of sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, IntArray
from easybalance_sim.cost.layer import LayerSeconds
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.outcome import Outcome


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBlock:
    """Replayed steps of one plan.

    window: int64[W] window of each step · tokens: int64[W] · slot_tokens: int32[W, L, P], rank_tokens: int32[W, L, R]
    assignments · seconds: per step and layer · rank_pairs: int64[R, R], node_pairs: int64[N, N] copies.
    """

    window: IntArray
    tokens: IntArray
    slot_tokens: Int32Array
    rank_tokens: Int32Array
    seconds: LayerSeconds
    rank_pairs: IntArray
    node_pairs: IntArray


class Tally:
    """What a plan did over all steps added so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tokens = self.steps = 0
        self.rank_pairs: IntArray = np.zeros((plan.ranks, plan.ranks), np.int64)
        self.node_pairs: IntArray = np.zeros((0, 0), np.int64)
        self.slot_tokens: IntArray = np.zeros((plan.layers, plan.slots), np.int64)
        self._open: tuple[int, int, IntArray] | None = None
        self._ratios: list[FloatArray] = []
        self._window_steps: list[int] = []
        self._total = [np.zeros((0, plan.layers), np.float32)]
        self._active: IntArray = np.zeros(int(plan.slots_per_rank.max()) + 1, np.int64)
        self._parts = np.zeros(3)

    def add(self, block: StepBlock) -> None:
        """Add a block; blocks must come in step order."""
        self.tokens += int(block.tokens.sum())
        self.steps += len(block.tokens)
        self.rank_pairs = self.rank_pairs + block.rank_pairs
        self.node_pairs = block.node_pairs + (self.node_pairs if self.node_pairs.size else 0)
        self.slot_tokens = self.slot_tokens + block.slot_tokens.sum(axis=0, dtype=np.int64)
        seconds = block.seconds
        self._total.append(seconds.total.astype(np.float32))
        self._active += np.bincount(seconds.active.ravel(), minlength=len(self._active))
        self._parts += [float(seconds.dispatch.sum()), float(seconds.expert.sum()), float(seconds.combine.sum())]
        self._add_windows(block)

    def outcome(self, copy_bytes: float) -> Outcome:
        """Everything so far as a value; copy_bytes: bytes of one copy, dispatch + combine."""
        return Outcome(
            plan=self.plan,
            tokens=self.tokens,
            steps=self.steps,
            tokens_per_step=self.tokens / max(self.steps, 1),
            window_imbalance=self._window_imbalance(),
            layer_seconds=np.concatenate(self._total),
            active_slots=self._active,
            phase_share=self._parts / max(self._parts.sum(), 1e-300),
            expert_tokens=self._expert_tokens(),
            rank_pairs=self.rank_pairs,
            node_pairs=self.node_pairs,
            copy_bytes=copy_bytes,
        )

    def _window_imbalance(self) -> FloatArray:
        """float64[w, L] max / mean rank tokens per window and layer; a last window cut short is left out if others
        exist, layers without traffic are NaN."""
        ratios, steps = list(self._ratios), list(self._window_steps)
        if self._open is not None:
            ratios.append(imbalance(self._open[2]))
            steps.append(self._open[1])
        if len(steps) > 1 and steps[-1] < max(steps):
            ratios.pop()
        return np.stack(ratios) if ratios else np.zeros((0, self.plan.layers))

    def _expert_tokens(self) -> IntArray:
        """int64[L, E] assignments per expert."""
        out = np.zeros((self.plan.layers, self.plan.experts), np.int64)
        np.add.at(out, (np.arange(self.plan.layers)[:, None], self.plan.expert_of_slot), self.slot_tokens)
        return out

    def _add_windows(self, block: StepBlock) -> None:
        starts = np.flatnonzero(np.diff(block.window, prepend=block.window[0] - 1))
        sums = np.add.reduceat(block.rank_tokens, starts, axis=0, dtype=np.int64)
        counts = np.diff(np.append(starts, len(block.window)))
        for window, count, tokens in zip(block.window[starts].tolist(), counts.tolist(), sums, strict=True):
            if self._open is not None and self._open[0] == window:
                self._open = (window, self._open[1] + count, self._open[2] + tokens)
                continue
            if self._open is not None:
                self._ratios.append(imbalance(self._open[2]))
                self._window_steps.append(self._open[1])
            self._open = (window, count, tokens)


def rank_sums(slot_values: AnyArray, plan: Plan) -> AnyArray:
    """[…, R] sums over the slots of each rank of values [..., P]."""
    sums: AnyArray = np.add.reduceat(slot_values, plan.slot_start[:-1], axis=-1)
    return sums


def imbalance(rank_tokens: AnyArray) -> FloatArray:
    """float64[...] max / mean over the last axis, NaN where there is no traffic."""
    mean = rank_tokens.mean(axis=-1)
    ratio: FloatArray = np.divide(rank_tokens.max(axis=-1), mean, out=np.full(mean.shape, np.nan), where=mean > 0)
    return ratio
