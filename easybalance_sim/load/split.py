"""Fit side and held-out side of a trace: no request is ever on both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray, frozen, stream
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.scan import TraceScan
from easybalance_sim.trace.schema import TokenBatch

FIT, HELD_OUT = 0, 1
MODES = ("time", "request", "workload")


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Which side each request is on.

    by: one of `MODES` · request: int64[Q] sorted ids · side: int8[Q] `FIT` or `HELD_OUT` · boundary: with `time`, the
    step at which the held-out part begins, else -1; a request that is alive at the boundary is held out, and its
    tokens before the boundary belong to neither side.
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
    scan: TraceScan, workloads: tuple[str, ...], by: str, held_out: float, seed: int, window_steps: int
) -> Split:
    """Split the requests of a scanned trace.

    held_out: wanted share of the held-out side, of steps (`time`), requests (`request`) or tokens (`workload`, whole
    workloads in seeded random order). Raises `UsageError` when a side would stay empty.
    """
    if by not in MODES:
        raise UsageError(f"no split {by!r}", where="--split", fix=f"choose {', '.join(MODES)}")
    if not 0 < held_out < 1:
        raise UsageError(f"held-out share {held_out:g} is not between 0 and 1", where="--held-out")
    if by == "time":
        split = _by_time(scan, held_out, window_steps)
    elif by == "request":
        split = _by_request(scan, held_out, seed)
    else:
        split = _by_workload(scan, workloads, held_out, seed)
    for side, name in ((FIT, "fit"), (HELD_OUT, "held-out")):
        if not (split.side == side).any():
            raise UsageError(
                f"the split by {by} leaves no request of {scan.requests} on the {name} side",
                where="--split",
                fix="choose another --split or --held-out, or give a longer trace",
            )
    return split


def _by_time(scan: TraceScan, held_out: float, window_steps: int) -> Split:
    span = scan.last_step - scan.first_step + 1
    boundary = scan.first_step + round(span * (1 - held_out))
    boundary = max(boundary // window_steps * window_steps, scan.first_step + 1)
    return Split(by="time", request=scan.request, side=_sides(scan.request_last >= boundary), boundary=boundary)


def _by_request(scan: TraceScan, held_out: float, seed: int) -> Split:
    order = stream(seed, "split").permutation(scan.requests)
    held = np.zeros(scan.requests, bool)
    held[order[: round(scan.requests * held_out)]] = True
    return Split(by="request", request=scan.request, side=_sides(held))


def _by_workload(scan: TraceScan, workloads: tuple[str, ...], held_out: float, seed: int) -> Split:
    tokens = np.bincount(scan.request_workload, weights=scan.request_tokens, minlength=len(workloads))
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
    return Split(by="workload", request=scan.request, side=_sides(np.isin(scan.request_workload, order[:count])))


def _sides(held: BoolArray) -> IntArray:
    return frozen(held, np.int8)
