"""Counts tokens into windows of n steps or t seconds, streaming."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import Int32Array, IntArray, sealed
from easybalance_sim.errors import UsageError
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.trace.scan import TraceScan
from easybalance_sim.trace.schema import CountTrace, TokenBatch, TraceMeta

WINDOW_BYTES = 256 << 20
"""What the counts of all windows of a trace may take; of longer traces a sample of the windows is counted."""
_MERGE_EVERY = 64


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """How steps form windows: `steps` per window, or `seconds` per window when that is > 0."""

    steps: int = 16
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 <= self.seconds < math.inf:
            raise UsageError("a window needs at least one step, or a positive time", where="--window-steps")

    @property
    def length(self) -> int:
        """Steps per window, 0 when seconds count."""
        return 0 if self.seconds > 0 else self.steps

    def require_forward(self, scan: TraceScan) -> None:
        """Raise `UsageError` where windows of seconds would begin again: a later step lies in an earlier one."""
        if self.seconds > 0:
            before, after = np.floor(scan.clock_back[:, 1:] / self.seconds).T
            back = np.flatnonzero(after < before)
            if len(back):
                raise _clock_goes_back(int(scan.clock_back[back[0], 0]))

    def of_steps(self, batch: TokenBatch, first: IntArray) -> IntArray:
        """int64[W] window ids of the steps that begin at rows `first` of the batch; raises like `ids`."""
        return self.ids(batch)[first] if self.seconds > 0 else batch.step[first].astype(np.int64) // self.steps

    def ids(self, batch: TokenBatch) -> IntArray:
        """int64[T] window id of every token; a step lies in the window in which it begins.

        Raises `UsageError` when seconds are asked of a trace without times, or of one whose clock goes back.
        """
        if self.seconds > 0:
            if batch.time_s is None:
                raise UsageError(
                    "the trace has no time_s column", where="--window-seconds", fix="use --window-steps instead"
                )
            first = batch.step_starts
            ids = np.floor(batch.time_s[first] / self.seconds).astype(np.int64)
            back = np.flatnonzero(np.diff(ids) < 0)
            if len(back):
                raise _clock_goes_back(int(batch.step[first[back[0] + 1]]))
            return np.repeat(ids, np.diff(np.append(first, batch.tokens)))
        return batch.step.astype(np.int64) // self.steps


def _clock_goes_back(step: int) -> UsageError:
    return UsageError(
        f"the trace's clock goes back at step {step}", where="--window-seconds", fix="use --window-steps instead"
    )


def count_windows(
    batches: Iterable[TokenBatch], meta: TraceMeta, windowing: Windowing, *, phase: str = "", workload: str = ""
) -> LoadWindows:
    """Sum the batches into `LoadWindows`, windows without traffic left out; one pass, memory O(W·L·E)."""
    shape = (len(meta.layers), meta.experts)
    shards = [
        LoadWindows(
            tokens=np.zeros((0, *shape), np.int64),
            window=np.zeros(0, np.int64),
            steps=np.zeros(0, np.int32),
            steps_per_window=windowing.length,
            phase=phase,
            workload=workload,
        )
    ]
    for batch in batches:
        ids, row = np.unique(windowing.ids(batch), return_inverse=True)
        tokens = np.zeros((len(ids), *shape), np.int64)
        kernels.load().count_windows(batch.experts, sealed(row.astype(np.int32)), tokens)
        shards.append(
            LoadWindows(
                tokens=sealed(tokens),
                window=ids,
                steps=_steps_per_window(batch, row.astype(np.int32), len(ids)),
                steps_per_window=windowing.length,
                phase=phase,
                workload=workload,
            )
        )
        if len(shards) > _MERGE_EVERY:
            shards = [shards[0].merged(shards[1:])]
    return shards[0].merged(shards[1:])


def sampling(scan: TraceScan, meta: TraceMeta, windowing: Windowing) -> int:
    """One in how many windows of a trace to count, so that all counts stay under `WINDOW_BYTES`."""
    numbers = scan.last_step - scan.first_step + 1
    windows = scan.seconds / windowing.seconds if windowing.seconds else numbers / windowing.steps
    # Step numbers may have gaps, and no window is without a step.
    windows = min(windows, scan.steps)
    return max(1, math.ceil(windows * len(meta.layers) * meta.experts * 8 / WINDOW_BYTES))


def windows_of_counts(trace: CountTrace) -> LoadWindows:
    """The windows of a count trace; one recorded window counts as one step."""
    return LoadWindows(
        tokens=trace.tokens,
        window=np.arange(len(trace.tokens)),
        steps=np.ones(len(trace.tokens), np.int32),
        steps_per_window=1,
    )


def _steps_per_window(batch: TokenBatch, row: Int32Array, windows: int) -> Int32Array:
    first = batch.step_starts
    return np.bincount(row[first], minlength=windows).astype(np.int32)
