"""Continuous batching: which request decodes in which step when N run at once."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.errors import UsageError

ORDERS = ("shuffled", "file", "by-workload")


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """When each queued request runs, one decode token per step.

    start: int64[Q] first step of each request, in queue order · length: int64[Q] tokens of each request ·
    full_until: the first step in which a slot stays empty because the queue has run out; the steps before it are
    those of a loaded server. 0 when the slots were never all taken.
    """

    start: IntArray
    length: IntArray
    full_until: int


def schedule(length: IntArray, concurrency: int, arrival_step: IntArray | None = None) -> Schedule:
    """Admit requests first come, first served into `concurrency` slots.

    length: int64[Q] tokens per request, ≥ 1 · arrival_step: int64[Q] sorted earliest steps, None = all at once.
    A slot that a request leaves takes the next request in the following step. Raises `UsageError` on a
    concurrency below 1.
    """
    if concurrency < 1:
        raise UsageError(f"--concurrency is {concurrency}", fix="give at least 1")
    ready = np.zeros(len(length), np.int64) if arrival_step is None else arrival_step
    free = [0] * concurrency
    start = np.empty(len(length), np.int64)
    for index, (tokens, earliest) in enumerate(zip(length.tolist(), ready.tolist(), strict=True)):
        start[index] = max(free[0], earliest)
        heapq.heapreplace(free, int(start[index]) + tokens)
    return Schedule(start=frozen(start), length=frozen(length, np.int64), full_until=min(free))


def ages(length: IntArray, concurrency: int, seed: int) -> IntArray:
    """int64[Q] tokens that the first `concurrency` requests have behind them when a loaded server is first looked at.

    length: int64[Q]. Requests that all began in the same step would emit the same opening tokens at the same time, a
    skew that no server in operation shows; so each of them has a uniformly random share of its tokens behind it.
    """
    age = np.zeros(len(length), np.int64)
    running = slice(0, concurrency)
    age[running] = (np.random.default_rng([seed, 1]).random(len(length[running])) * length[running]).astype(np.int64)
    return age


def queue_order(order: str, workload: AnyArray, seed: int) -> IntArray:
    """int64[Q] the order in which requests join the queue.

    order: "shuffled" (by `seed`), "file" (as recorded) or "by-workload" (one workload after the other, in file order
    inside) · workload: int[Q] code of each request. Raises `UsageError` on another order.
    """
    if order == "shuffled":
        return np.random.default_rng(seed).permutation(len(workload)).astype(np.int64)
    if order == "file":
        return np.arange(len(workload), dtype=np.int64)
    if order == "by-workload":
        return np.argsort(workload, kind="stable").astype(np.int64)
    raise UsageError(f"--order is {order!r}", fix=f"use one of {', '.join(ORDERS)}")


def arrival_steps(seconds: FloatArray, requests: int, step_s: float, where: str) -> IntArray:
    """int64[Q] the first step at or after each of the first `requests` arrivals.

    seconds: float64[A] arrival times, any origin, sorted. Raises `UsageError` when there are too few or the clock
    does not tick forward.
    """
    if step_s <= 0:
        raise UsageError(f"--step-ms is {step_s * 1000:g}", fix="give a step length above 0")
    if len(seconds) < requests:
        raise UsageError(
            f"{len(seconds)} arrivals for {requests} requests", where=where, fix="give a longer file with --arrivals"
        )
    since_first = seconds[:requests] - seconds[0]
    # The epsilon keeps an arrival that is a whole number of steps away from slipping into the next one.
    steps: IntArray = np.ceil(since_first / step_s - 1e-9).astype(np.int64)
    return steps


def token_steps(plan: Schedule) -> IntArray:
    """int64[T] step of every token, requests one after the other in queue order."""
    first = np.repeat(plan.start - _before(plan.length), plan.length)
    steps: IntArray = first + np.arange(int(plan.length.sum()), dtype=np.int64)
    return steps


def _before(length: IntArray) -> IntArray:
    sums: IntArray = np.cumsum(length) - length
    return sums
