"""The requests behind recorded steps: when each came and went, what its first tokens chose, and two sides of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import BoolArray, Int16Array, IntArray, frozen, sealed, stream
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import TokenBatch

SPLITS = ("time", "request")
EVERY_TOKEN = 1 << 30
"""More first tokens than a request has."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Requests:
    """Q requests in order of their ids.

    id: int64[Q] · first, last: int64[Q] places of the steps in which a request comes and goes · tokens: int64[Q] that
    it runs · chunk: int64[Q] of these in its first step · context: int64[Q] tokens that its KV cache holds before ·
    workload: int16[Q] · of_token: int64[T] request of each token · place: int64[T] number of the token in its request ·
    start: int64[S+1] first token of each step, then T.
    """

    id: IntArray
    first: IntArray
    last: IntArray
    tokens: IntArray
    chunk: IntArray
    context: IntArray
    workload: Int16Array
    of_token: IntArray
    place: IntArray
    start: IntArray

    def __len__(self) -> int:
        return len(self.id)


def requests_of(steps: RecordedSteps) -> Requests:
    """The requests of recorded steps; a request comes with its first token and goes with its last."""
    ids, lead, of_token = np.unique(steps.request, return_index=True, return_inverse=True)
    tokens = np.bincount(of_token, minlength=len(ids))
    begin = np.cumsum(tokens) - tokens
    order = np.argsort(of_token, kind="stable")
    place = np.empty(len(of_token), np.int64)
    place[order] = np.arange(len(of_token)) - np.repeat(begin, tokens)
    step = steps.step_of_token
    last = np.zeros(len(ids), np.int64)
    last[of_token] = step
    chunk = np.bincount(of_token[step == step[lead][of_token]], minlength=len(ids))
    return Requests(
        id=frozen(ids, np.int64),
        first=sealed(step[lead]),
        last=sealed(last),
        tokens=sealed(tokens),
        chunk=sealed(chunk),
        context=sealed(np.maximum(steps.position[lead], 0).astype(np.int64)),
        workload=sealed(steps.workload[lead]),
        of_token=sealed(of_token),
        place=sealed(place),
        start=steps.start,
    )


def first_counts(steps: RecordedSteps, requests: Requests, tokens: int, layers: IntArray | None = None) -> IntArray:
    """int64[Q, l, E] assignments of the first `tokens` tokens of every request; layers: rows that count, None = all."""
    experts = steps.experts if layers is None else frozen(steps.experts[:, layers])
    out = np.zeros((len(requests), experts.shape[1], steps.meta.experts), np.int64)
    row = np.where(requests.place < tokens, requests.of_token, -1)
    kernels.load().count_windows(experts, frozen(row, np.int32), out)
    return sealed(out)


def batch_of(steps: RecordedSteps, source: Int16Array) -> TokenBatch:
    """The tokens as replay takes them, source int16[T] their ranks; step numbers are places."""
    return TokenBatch(
        step=frozen(steps.step_of_token, np.int32),
        request=steps.request,
        position=steps.position,
        phase=steps.phase,
        source_rank=frozen(source, np.int16),
        workload=steps.workload,
        experts=steps.experts,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Sides:
    """What may be learnt from and what is judged; no request is on both. first, end: steps (places) of `judged` that
    count: before, requests only gather; behind, no more come and the batch runs dry."""

    fit: RecordedSteps
    judged: RecordedSteps
    first: int
    end: int


def split_sides(steps: RecordedSteps, by: str = "time", held_out: float = 0.5, seed: int = 0) -> Sides:
    """Two sides of the requests.

    by: `time`, requests that ended before a boundary and the others, which are judged behind it · `request`, drawn by
    seed · held_out: share of the steps, or of the requests. Raises `UsageError` when a side stays empty.
    """
    if by not in SPLITS:
        raise UsageError(f"no split {by!r}", where="split", fix=f"choose {', '.join(SPLITS)}")
    requests = requests_of(steps)
    boundary = round(len(steps) * (1 - held_out)) if by == "time" else 0
    if by == "time":
        fit = requests.last < boundary
    else:
        fit = np.ones(len(requests), np.bool_)
        fit[stream(seed, "split").permutation(len(requests))[: round(len(requests) * held_out)]] = False
    if fit.all() or not fit.any():
        raise UsageError(
            f"the split by {by} leaves one side of {len(requests)} requests empty", where="split", fix="take more steps"
        )
    judged = _of_requests(steps, requests, ~fit)
    places = np.flatnonzero(np.isin(steps.step, judged.step))
    first, end = int(np.searchsorted(places, boundary)), int(requests_of(judged).first.max()) + 1
    return Sides(fit=_of_requests(steps, requests, fit), judged=judged, first=min(first, end - 1), end=end)


def _of_requests(steps: RecordedSteps, requests: Requests, chosen: BoolArray) -> RecordedSteps:
    """The tokens of the chosen requests; steps without any are left out."""
    rows = np.flatnonzero(chosen[requests.of_token])
    step = steps.step_of_token[rows]
    kept, start = np.unique(step, return_index=True)
    by_token: dict[str, Any] = {
        field.name: sealed(value[rows])
        for field in fields(steps)
        if isinstance(value := getattr(steps, field.name), np.ndarray) and field.name not in ("step", "start")
    }
    return replace(
        steps, step=sealed(steps.step[kept]), start=frozen(np.append(start, len(rows)), np.int64), **by_token
    )
