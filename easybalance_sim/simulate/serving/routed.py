"""The routed requests that requests in service stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, Int16Array, IntArray, frozen, mixed, sealed, stream
from easybalance_sim.errors import TraceError
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.workload import Workload
from easybalance_sim.trace.schema import DECODE, PREFILL, TokenBatch

MOST_REQUESTS, MOST_TOKENS = 2048, 1 << 18
SET_ASIDE = 4
"""One request in so many is kept for fitting the step model and stands for nobody."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Routed:
    """N routed requests of L layers; tokens lie request by request, prompt before answer, each in order of position.

    Row 2i is the prompt of request i, row 2i + 1 its answer; where the trace lacks one of them (or the phase is
    unknown), both are the same tokens. experts: uint8|uint16[T, L, K] · n_experts: E · start: int64[U+1] first token of
    each stretch, then T · stretch: int64[2N] of each row · request: int64[N] id in the trace, workload: int16[N] index
    into `workloads`, aside: bool[N] those that stand for nobody · notes: for the user.
    """

    experts: AnyArray
    n_experts: int
    start: IntArray
    stretch: IntArray
    request: IntArray
    workload: Int16Array
    aside: BoolArray
    workloads: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def requests(self) -> int:
        """N."""
        return len(self.request)

    @property
    def tokens(self) -> IntArray:
        """int64[2N] of each row."""
        return np.diff(self.start)[self.stretch]

    @property
    def first(self) -> IntArray:
        """int64[2N] first token of each row."""
        return self.start[self.stretch]


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
    first = np.flatnonzero((np.diff(request, prepend=request[0] - 1) != 0) | (np.diff(phase, prepend=phase[0]) != 0))
    whole, place, stretches = np.unique(request[first], return_index=True, return_counts=True)
    of_request = workload[order][first][place]
    notes: tuple[str, ...] = ()
    if kept.seen > len(whole):
        notes = (f"{len(whole):,} of {kept.seen:,} routed requests were drawn to stand for those in service",)
    return Routed(
        experts=frozen(ids[order]),
        n_experts=experts,
        start=frozen(np.append(first, len(request)), np.int64),
        stretch=frozen(np.stack([place, place + stretches - 1], axis=1).ravel(), np.int64),
        request=frozen(whole, np.int64),
        workload=frozen(of_request, np.int16),
        aside=sealed(_set_aside(of_request, seed)),
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


def _set_aside(workload: Int16Array, seed: int) -> BoolArray:
    """bool[N]: one request in `SET_ASIDE` of every workload, of one that has fewer none."""
    aside = np.zeros(len(workload), np.bool_)
    rng = stream(seed, "routed requests set aside")
    for code in np.unique(workload):
        mine = rng.permutation(np.flatnonzero(workload == code))
        aside[mine[: len(mine) // SET_ASIDE]] = True
    return aside


def drawn(routed: Routed, workload: Workload, seed: int = 0) -> Profiles:
    """Which routed request each request in service stands for: one of a workload of its tenant's name, else any, all
    equally likely."""
    names = np.array([routed.workloads[code] for code in routed.workload])
    rng = stream(seed, "routed requests drawn")
    pick = np.zeros(workload.requests, np.int64)
    for tenant, name in enumerate(workload.tenants):
        mine = np.flatnonzero(workload.tenant == tenant)
        alike = np.flatnonzero(~routed.aside & (names == name))
        pick[mine] = rng.choice(alike if len(alike) else np.flatnonzero(~routed.aside), len(mine))
    return Profiles(prefill=frozen(2 * pick, np.int32), decode=frozen(2 * pick + 1, np.int32))


def strangers(routed: Routed, workload: Workload) -> tuple[str, ...]:
    """Tenants with requests for which no workload of the routing trace has their name."""
    known = {routed.workloads[code] for code in np.unique(routed.workload[~routed.aside])}
    present = np.bincount(workload.tenant, minlength=len(workload.tenants)) > 0
    return tuple(name for name, there in zip(workload.tenants, present, strict=True) if there and name not in known)
