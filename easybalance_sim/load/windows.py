"""`LoadWindows`: assignments per (window, layer, expert), the sum over shards of which is again one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import BoolArray, Int32Array, IntArray, frozen, sealed
from easybalance_sim.errors import EbsimError


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadWindows:
    """Counts of one side of a trace.

    tokens: int64[W, L, E] assignments · window: int64[W] rising window ids (step // steps_per_window, or counted in
    seconds) · steps: int32[W] steps with traffic in each window · steps_per_window: n, 0 for windows of seconds ·
    phase, workload: the stratum, "" = all.
    `a + b` merges two shards of one stratum; windows with the same id are added. Raises `EbsimError` when the shapes
    do not fit.
    """

    tokens: IntArray
    window: IntArray
    steps: Int32Array
    steps_per_window: int
    phase: str = ""
    workload: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", frozen(self.tokens, np.int64))
        object.__setattr__(self, "window", frozen(self.window, np.int64))
        object.__setattr__(self, "steps", frozen(self.steps, np.int32))
        if self.tokens.ndim != 3 or len(self.window) != len(self.tokens) or len(self.steps) != len(self.tokens):
            raise EbsimError(
                "tokens must be [W, L, E] with one window id and step count per window", where="LoadWindows"
            )
        if (np.diff(self.window) <= 0).any():
            raise EbsimError("window ids must rise, each once", where="LoadWindows")

    def __add__(self, other: LoadWindows) -> LoadWindows:
        return self.merged([other])

    def merged(self, others: Sequence[LoadWindows]) -> LoadWindows:
        """This and other shards in one, as `+` gives it step by step."""
        if any(other._kind != self._kind for other in others):
            raise EbsimError("shards differ in window length, stratum or [L, E]", where="LoadWindows")
        ids = np.unique(np.concatenate([shard.window for shard in (self, *others)]))
        tokens = np.zeros((len(ids), *self.tokens.shape[1:]), np.int64)
        steps = np.zeros(len(ids), np.int32)
        for shard in (self, *others):
            rows = np.searchsorted(ids, shard.window)
            tokens[rows] += shard.tokens
            steps[rows] += shard.steps
        return self._with(sealed(tokens), sealed(ids), sealed(steps))

    def pick(self, keep: BoolArray | slice) -> LoadWindows:
        """The windows chosen by a mask or a slice."""
        return self._with(self.tokens[keep], self.window[keep], self.steps[keep])

    def full_only(self) -> LoadWindows:
        """Without a trailing window cut short (fewer steps with traffic than its length) when longer ones exist.

        A window of seconds is cut short when it has fewer steps than the median of the others.
        """
        earlier = self.steps[:-1]
        if len(earlier) and self.steps[-1] < min(self.steps_per_window or np.median(earlier), earlier.max()):
            return self.pick(slice(0, -1))
        return self

    @property
    def total(self) -> IntArray:
        """int64[L, E] assignments over all windows."""
        return frozen(self.tokens.sum(axis=0), np.int64)

    @property
    def _kind(self) -> tuple[object, ...]:
        return self.steps_per_window, self.phase, self.workload, self.tokens.shape[1:]

    def _with(self, tokens: IntArray, window: IntArray, steps: Int32Array) -> LoadWindows:
        return LoadWindows(
            tokens=tokens,
            window=window,
            steps=steps,
            steps_per_window=self.steps_per_window,
            phase=self.phase,
            workload=self.workload,
        )
