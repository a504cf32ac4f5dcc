"""Fit side and held-out side of a trace: no request is ever on both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray, frozen, stream
from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.trace.scan import TraceScan
from easybalance_sim.trace.schema import TokenBatch

FIT, HELD_OUT, NEITHER = 0, 1, -1
MODES = ("time", "request", "workload")


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Which side each request is on.

    by: one of `MODES` · request: int64[Q] sorted ids · side: int8[Q] `FIT`, `HELD_OUT` or `NEITHER` · boundary: with
    `time`, the step at which the held-out part begins, else -1; a request that is alive at the boundary is held out,
    and its tokens before the boundary belong to neither side.
    """

    by: str
    request: IntArray
    side: IntArray
    boundary: int = -1

    def mask(self, batch: TokenBatch, side: int) -> BoolArray:
        """bool[T]: the tokens of `batch` that are on `side`."""
        mine: BoolArray = self._side_of(batch.request) == side
        if self.boundary >= 0:
            mine &= (batch.step >= self.boundary) == (side == HELD_OUT)
        return mine

    def _side_of(self, request: IntArray) -> IntArray:
        first, last = int(self.request[0]), int(self.request[-1])
        if last - first + 1 == len(self.request):
            sides: IntArray = self.side[request - first]
            return sides
        return self.side[np.searchsorted(self.request, request)]


def make_split(
    scan: TraceScan,
    workloads: tuple[str, ...],
    by: str,
    held_out: float,
    seed: int,
    window_steps: int,
    chosen: tuple[int, ...] | None = None,
) -> Split:
    """Split the requests of a scanned trace, or those of the `chosen` workload codes alone; the others are on no side.

    held_out: wanted share of the held-out side, of the trace's steps (`time`), or of the chosen requests (`request`) or
    their tokens (`workload`, whole workloads in seeded random order). Raises `UsageError` when a side would stay empty.
    """
    if by not in MODES:
        raise UsageError(f"no split {by!r}", where="--split", fix=f"{did_you_mean(by, MODES)}choose {', '.join(MODES)}")
    if not 0 < held_out < 1:
        raise UsageError(f"held-out share {held_out:g} is not between 0 and 1", where="--held-out")
    part = np.flatnonzero(np.ones(scan.requests) if chosen is None else np.isin(scan.request_workload, chosen))
    boundary = _boundary(scan, held_out, window_steps) if by == "time" else -1
    if by == "time":
        held = scan.request_last[part] >= boundary
    elif by == "request":
        held = _random_share(len(part), held_out, seed)
    else:
        held = _by_workload(scan, part, workloads, held_out, seed)
    _require_both(held, by)
    side = np.full(scan.requests, NEITHER, np.int8)
    side[part] = held
    return Split(by=by, request=scan.request, side=frozen(side), boundary=boundary)


def _require_both(held: BoolArray, by: str) -> None:
    for empty, name in ((held.all(), "fit"), (not held.any(), "held-out")):
        if empty:
            raise UsageError(
                f"the split by {by} leaves no request of {len(held)} on the {name} side",
                where="--split",
                fix="choose another --split, --held-out or --window-steps, or give a longer trace",
            )


def _boundary(scan: TraceScan, held_out: float, window_steps: int) -> int:
    """The step at which the held-out part begins, where a window does."""
    span = scan.last_step - scan.first_step + 1
    boundary = scan.first_step + round(span * (1 - held_out))
    return max(boundary // window_steps * window_steps, scan.first_step + 1)


def _random_share(requests: int, held_out: float, seed: int) -> BoolArray:
    held = np.zeros(requests, np.bool_)
    held[stream(seed, "split").permutation(requests)[: round(requests * held_out)]] = True
    return held


def _by_workload(scan: TraceScan, part: IntArray, workloads: tuple[str, ...], held_out: float, seed: int) -> BoolArray:
    """bool[q] requests whose workload is held out."""
    workload = scan.request_workload[part]
    tokens = np.bincount(workload, weights=scan.request_tokens[part], minlength=len(workloads))
    present = np.flatnonzero(tokens)
    if len(present) < 2:
        raise UsageError(
            f"only one workload ({', '.join(workloads[code] for code in present)}), nothing to split",
            where="--split workload",
            fix="use --split time or request",
        )
    order = stream(seed, "split").permutation(present)
    share = np.cumsum(tokens[order]) / tokens.sum()
    count = int(np.clip(np.searchsorted(share, held_out) + 1, 1, len(present) - 1))
    return np.isin(workload, order[:count])
