"""The routed requests that requests in service stand for, and how a plan spreads their tokens over the ranks.

A row is a request's tokens of one phase, n of them. The replica of an expert that gets a token is a matter of the
dispatch rule: its share is what the rule gives on average (over the sources, where the source decides). With x_t the
assignments that token t of a row sends to a rank, in one layer:

    mean   = (1/n) Σ x_t
    spread = (1 - 1/n) · (Σ (x_t - mean)² + A·pooled) / (n - 1 + A),    pooled = Σ over rows of Σ (x_t - mean)² / Σ (n - 1)

A token drawn from a row at random then has the row's mean and, but for the shrinking of short rows towards what is usual
in the layer and rank, the row's variance; over rows drawn at random both together are the variance of any token.
Prompt tokens come in runs, so their spread is that of a run, see `run_share`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    Int16Array,
    IntArray,
    frozen,
    mixed,
    sealed,
    stream,
)
from easybalance_sim.errors import TraceError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import Dispatch
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.workload import Workload
from easybalance_sim.trace.schema import DECODE, PREFILL, TokenBatch

MOST_REQUESTS, MOST_TOKENS = 2048, 1 << 18
SET_ASIDE = 4
"""One request in so many is kept for fitting the step model and stands for nobody."""
PRIOR_TOKENS = 8.0
"""A of the module's formula: so many tokens of what is usual are added to a row's own."""
IN_TURN = ("even", "tensorrt-llm")
"""Rules under which replicas take turns, so that which one gets a token adds no chance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Routed:
    """Routed requests; tokens lie request by request, a request's prompt before its answer, each in order of position.

    experts: uint8|uint16[T, L, K] · n_experts: E · start: int64[Q+1] first token of each row, then T · request:
    int64[Q] id in the trace, phase: uint8[Q] `PREFILL` or `DECODE` (an unknown phase counts as decode), workload:
    int16[Q] index into `workloads`, of each row · aside: bool[Q] rows that stand for nobody · notes: for the user.
    """

    experts: AnyArray
    n_experts: int
    start: IntArray
    request: IntArray
    phase: AnyArray
    workload: Int16Array
    aside: BoolArray
    workloads: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def rows(self) -> int:
        """Q."""
        return len(self.phase)

    @property
    def tokens(self) -> IntArray:
        """int64[Q] of each row."""
        return np.diff(self.start)


def routed_requests(
    batches: Iterable[TokenBatch],
    workloads: Sequence[str],
    experts: int,
    *,
    most_requests: int = MOST_REQUESTS,
    most_tokens: int = MOST_TOKENS,
    seed: int = 0,
) -> Routed:
    """The requests of token batches; when there are too many, a random choice of whole ones (a note says so).

    workloads: names that `TokenBatch.workload` indexes · experts: E. Memory is bounded by the two limits. Raises
    `TraceError` when there is no token.
    """
    kept = _Kept(seed, most_requests, most_tokens)
    for batch in batches:
        kept.add(batch)
    if not kept.parts:
        raise TraceError("there are no tokens to draw routing from", where="routing trace")
    request, position, phase, workload, ids = kept.columns()
    order = np.lexsort((position, phase, request))
    request, phase = request[order], phase[order]
    first = np.flatnonzero(np.diff(request, prepend=request[0] - 1) | np.diff(phase, prepend=phase[0]))
    whole = sealed(np.unique(request))
    notes = ()
    if kept.seen > len(whole):
        notes = (f"{len(whole)} of {kept.seen} routed requests were drawn to stand for those in service",)
    return Routed(
        experts=frozen(ids[order]),
        n_experts=experts,
        start=frozen(np.append(first, len(request)), np.int64),
        request=frozen(request[first], np.int64),
        phase=frozen(phase[first], np.uint8),
        workload=frozen(workload[order][first], np.int16),
        aside=sealed(_set_aside(request[first], workload[order][first], seed)),
        workloads=tuple(workloads),
        notes=notes,
    )


class _Kept:
    """Tokens of the requests whose hash is lowest: a random choice that one pass can make."""

    def __init__(self, seed: int, most_requests: int, most_tokens: int) -> None:
        self.parts: list[tuple[AnyArray, ...]] = []
        self._seed, self._most_requests, self._most_tokens = seed, most_requests, most_tokens
        self._limit = np.uint64(np.iinfo(np.uint64).max)
        self._held = 0
        self._seen: set[int] = set()

    @property
    def seen(self) -> int:
        """Distinct requests so far."""
        return len(self._seen)

    def add(self, batch: TokenBatch) -> None:
        """Take in what is below the limit, and lower the limit when that is too much."""
        self._seen.update(np.unique(batch.request).tolist())
        phase = np.where(batch.phase == PREFILL, PREFILL, DECODE).astype(np.uint8)
        part = (batch.request, batch.position, phase, batch.workload, batch.experts)
        inside = self._place(batch.request) <= self._limit
        if inside.any():
            self.parts.append(part if inside.all() else tuple(column[inside] for column in part))
            self._held += int(inside.sum())
        if self._held > 2 * self._most_tokens:
            self._shrink()

    def columns(self) -> tuple[AnyArray, ...]:
        """request, position, phase, workload, experts of the tokens that stay."""
        self._shrink()
        return self.parts[0]

    def _shrink(self) -> None:
        whole = tuple(np.concatenate(columns) for columns in zip(*self.parts, strict=True))
        request, tokens = np.unique(whole[0], return_counts=True)
        place = self._place(request)
        order = np.argsort(place)
        fits = (np.cumsum(tokens[order]) <= self._most_tokens) & (np.arange(len(order)) < self._most_requests)
        self._limit = place[order[max(1, int(fits.sum())) - 1]]
        inside = self._place(whole[0]) <= self._limit
        self.parts = [whole if inside.all() else tuple(column[inside] for column in whole)]
        self._held = int(inside.sum())

    def _place(self, request: IntArray) -> AnyArray:
        return mixed(request ^ (self._seed * 0x9E3779B1))


def _set_aside(request: IntArray, workload: Int16Array, seed: int) -> BoolArray:
    """bool[Q]: one request in `SET_ASIDE` of every workload, of one that has fewer none."""
    ids, place = np.unique(request, return_index=True)
    aside = np.zeros(len(ids), np.bool_)
    rng = stream(seed, "routed requests set aside")
    for name in np.unique(workload):
        mine = rng.permutation(np.flatnonzero(workload[place] == name))
        aside[mine[: len(mine) // SET_ASIDE]] = True
    return aside[np.searchsorted(ids, request)]


def profiles(routed: Routed, plan: Plan, dispatch: Dispatch) -> tuple[AnyArray, AnyArray]:
    """mean and spread, float32[Q, L, R], of the module's formulas for one plan and dispatch rule."""
    total, square = (np.zeros((routed.rows, plan.layers, plan.ranks)) for _ in range(2))
    kernels.load().rank_moments(
        routed.experts, routed.start, plan.replica_start,
        frozen(plan.rank_of_slot[plan.replica_slot], np.int32), replica_shares(plan, dispatch),
        dispatch.rule not in IN_TURN, total, square,
    )  # fmt: skip
    tokens = routed.tokens[:, None, None].astype(np.float64)
    mean = total / tokens
    scatter = np.maximum(square - total * mean, 0.0)
    pooled = scatter.sum(axis=0) / max(1.0, float((tokens - 1).sum()))
    spread = (1 - 1 / tokens) * (scatter + PRIOR_TOKENS * pooled) / (tokens - 1 + PRIOR_TOKENS)
    return mean.astype(np.float32), spread.astype(np.float32)


def replica_shares(plan: Plan, dispatch: Dispatch) -> FloatArray:
    """float64[L, P] share of its expert's tokens that each replica gets on average, in the order of `replica_slot`."""
    even = np.take_along_axis(1.0 / plan.replicas, plan.expert_of_slot, axis=1)
    by_slot = even
    if dispatch.table.shape[1:] == (plan.layers, plan.experts):
        by_slot = np.zeros((plan.layers, plan.slots))
        layer = np.arange(plan.layers)[:, None]
        for slots in dispatch.table:
            chosen = slots >= 0
            np.add.at(by_slot, (np.broadcast_to(layer, slots.shape)[chosen], slots[chosen]), 1.0)
            by_slot += even * np.take_along_axis(~chosen, plan.expert_of_slot, axis=1)
        by_slot /= len(dispatch.table)
    return frozen(np.take_along_axis(by_slot, plan.replica_slot, axis=1), np.float64)


def drawn(routed: Routed, workload: Workload, seed: int = 0) -> Profiles:
    """Which rows the requests in service stand for: those of a routed request of a workload of their tenant's name,
    else of any, all equally likely; where that one has no tokens of a phase, those of the other."""
    prefill, decode = _rows_of_requests(routed)
    names = [routed.workloads[code] for code in routed.workload[decode]]
    open_ = ~routed.aside[decode]
    rng = stream(seed, "routed requests drawn")
    pick = np.zeros(workload.requests, np.int64)
    for tenant, name in enumerate(workload.tenants):
        mine = np.flatnonzero(workload.tenant == tenant)
        alike = np.flatnonzero(open_ & np.array([other == name for other in names]))
        pick[mine] = rng.choice(alike if len(alike) else np.flatnonzero(open_), len(mine))
    return Profiles(prefill=prefill[pick].astype(np.int32), decode=decode[pick].astype(np.int32))


def strangers(routed: Routed, workload: Workload) -> tuple[str, ...]:
    """Tenants with requests for which no workload of the routing trace has their name."""
    known = {routed.workloads[code] for code in np.unique(routed.workload[~routed.aside])}
    present = np.bincount(workload.tenant, minlength=len(workload.tenants)) > 0
    return tuple(name for name, there in zip(workload.tenants, present, strict=True) if there and name not in known)


def _rows_of_requests(routed: Routed) -> tuple[IntArray, IntArray]:
    """int64[requests] row of each routed request's prompt, and of its answer (the other one's where one is missing)."""
    first = np.flatnonzero(np.diff(routed.request, prepend=routed.request[0] - 1))
    last = np.append(first[1:], routed.rows) - 1
    return first, last
