"""What kind of traffic runs when: the workload of most requests in each window, from the lives of requests alone."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray
from easybalance_sim.load.selection import Selection
from easybalance_sim.load.split import HELD_OUT, Split
from easybalance_sim.trace.dataset import TokenTrace


def leading(trace: TokenTrace, chosen: BoolArray, ids: IntArray, length: int) -> tuple[str, ...]:
    """The workload of more than half of the requests that run in each window, "" where there is none.

    chosen: bool[Q] requests that count · ids: int64[w] windows of `length` steps.
    """
    scan = trace.scan()
    running = np.zeros((len(ids), len(trace.workloads)), np.int64)
    for code in range(len(trace.workloads)):
        mine = chosen & (scan.request_workload == code)
        begun = np.searchsorted(np.sort(scan.request_first[mine] // length), ids, side="right")
        running[:, code] = begun - np.searchsorted(np.sort(scan.request_last[mine] // length), ids, side="left")
    most = running.argmax(axis=1)
    leads = 2 * running.max(axis=1) > running.sum(axis=1)
    return tuple(trace.workloads[code] if clear else "" for code, clear in zip(most.tolist(), leads, strict=True))


def judged_requests(trace: TokenTrace, selection: Selection, split: Split | None) -> BoolArray:
    """bool[Q] requests of a selection that are on the held-out side, or that no plan was made from."""
    chosen = _of_workloads(trace, selection)
    if split is not None:
        chosen &= split.side == HELD_OUT
    seen = selection.without
    if seen is not None:
        fitted = _of_workloads(trace, seen)
        kept = None if seen.without is None else seen.without.split
        chosen &= ~fitted if kept is None else ~fitted | (kept.side == HELD_OUT)
    return chosen


def _of_workloads(trace: TokenTrace, selection: Selection) -> BoolArray:
    scan = trace.scan()
    if selection.workloads is None:
        return np.ones(scan.requests, np.bool_)
    return np.isin(scan.request_workload, selection.workloads)
