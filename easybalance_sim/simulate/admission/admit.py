"""Admission: which rank takes a request when it comes. There it stays, with its KV cache, until it ends.

A group of ranks (a node, or one rank) has two loads: the tokens that the caches of its running requests hold, and the
tokens that it ran of late; a request counts with its first chunk from the moment of its admission. A group's overload
is the larger of the two over its fair part of all ranks'. A request goes where cost + price · overload is least, among
groups whose overload with it stays within 1 + slack; where none does, to the least overloaded. The price lets requests
that do not care much keep the loads even, which a limit alone leaves to those that happen to come when it is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, Int16Array, IntArray, frozen, sealed
from easybalance_sim.simulate.admission.requests import Requests

RECENT_STEPS = 12
"""Steps over which work that was done is forgotten (mean age): 300 ms of 25 ms."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How load weighs against cost. slack: of the limit, see the module · price: share of its assignments that a
    request may send away more for a group that is less overloaded by one mean load."""

    slack: float = 0.5
    price: float = 0.25


@dataclass(frozen=True, kw_only=True, eq=False)
class Admitted:
    """Where Q requests run. rank: int16[Q] for good · probe: int16[Q] rank of the first `probed` int64[Q] tokens, run
    before anything was known of the request · spilled: bool[Q] sent elsewhere than where it costs least · overload:
    float64[Q] of the group with the request · forced: bool[Q] no group was within the limit."""

    rank: Int16Array
    probe: Int16Array
    probed: IntArray
    spilled: BoolArray
    overload: FloatArray
    forced: BoolArray

    def source(self, requests: Requests) -> Int16Array:
        """int16[T] rank at which every token enters."""
        early = requests.place < self.probed[requests.of_token]
        return sealed(np.where(early, self.probe[requests.of_token], self.rank[requests.of_token]))

    def moved(self, node_of_rank: IntArray) -> BoolArray:
        """bool[Q] requests whose first tokens ran on another node than the rest."""
        away: BoolArray = (node_of_rank[self.probe] != node_of_rank[self.rank]) & (self.probed > 0)
        return away


def by_number(requests: Requests, ranks: int) -> Admitted:
    """Request mod R, whatever the load."""
    rank, nothing = sealed((requests.id % ranks).astype(np.int16)), sealed(np.zeros(len(requests), np.bool_))
    return Admitted(
        rank=rank,
        probe=rank,
        probed=frozen(nothing, np.int64),
        spilled=nothing,
        overload=sealed(np.zeros(len(rank))),
        forced=nothing,
    )


def least_loaded(requests: Requests, ranks: int) -> Admitted:
    """Always the rank with the least load."""
    return admit(requests, np.zeros((len(requests), ranks)), np.arange(ranks), Rule(slack=np.inf, price=1.0))


def admit(
    requests: Requests, cost: FloatArray, group: IntArray, rule: Rule, probed: IntArray | None = None
) -> Admitted:
    """Admit requests in the order in which they come.

    cost: float64[Q, G] of a request in each group · group: int64[R] of each rank, 0..G-1 · probed: int64[Q] first
    tokens of each that run on the least loaded rank of all before it is admitted, None = none.
    """
    ward = _Ward(requests=requests, cost=cost, group=group, rule=rule)
    coming, going = _by_step(requests.first), _by_step(requests.last)
    for step in range(len(requests.start) - 1):
        for request in coming(step):
            ward.take(request)
        ward.run(step)
        for request in going(step):
            ward.leave(request)
    return Admitted(
        rank=sealed(ward.rank),
        probe=sealed(ward.probe),
        probed=frozen(np.zeros(len(requests)) if probed is None else probed, np.int64),
        spilled=sealed(ward.spilled),
        overload=sealed(ward.overload),
        forced=sealed(ward.forced),
    )


@dataclass(kw_only=True, eq=False)
class _Ward:
    """The running requests as loads of ranks, float64[2, R]: tokens in caches, tokens run of late."""

    requests: Requests
    cost: FloatArray
    group: IntArray
    rule: Rule
    loads: FloatArray = field(init=False)
    fair: FloatArray = field(init=False)
    rank: Int16Array = field(init=False)
    probe: Int16Array = field(init=False)
    spilled: BoolArray = field(init=False)
    overload: FloatArray = field(init=False)
    forced: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.requests)
        self.loads, self.fair = np.zeros((2, len(self.group))), np.bincount(self.group) / len(self.group)
        self.rank, self.probe = np.zeros(count, np.int16), np.zeros(count, np.int16)
        self.spilled, self.forced = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self.overload = np.zeros(count)

    def take(self, request: int) -> None:
        """Choose a rank and load it."""
        chunk = float(self.requests.chunk[request])
        more = np.array([self.requests.context[request] + chunk, chunk])
        busy = (self.loads / np.maximum(self.loads.sum(axis=1, keepdims=True), 1.0)).max(axis=0)
        over, cost = self._overload(more), self.cost[request]
        group = self._group(request, over, cost)
        mine = np.flatnonzero(self.group == group)
        rank = int(mine[busy[mine].argmin()])
        self.loads[:, rank] += more
        self.rank[request], self.probe[request] = rank, int(busy.argmin())
        self.spilled[request], self.overload[request] = cost[group] > cost.min(), over[group]

    def _overload(self, more: FloatArray) -> FloatArray:
        """float64[G] of each group if it took the request."""
        by_group = np.stack([np.bincount(self.group, weights=load, minlength=len(self.fair)) for load in self.loads])
        total = self.loads.sum(axis=1) + more
        over: FloatArray = ((by_group + more[:, None]) / (np.maximum(total, 1.0)[:, None] * self.fair)).max(axis=0)
        return over

    def _group(self, request: int, over: FloatArray, cost: FloatArray) -> int:
        fits = over <= 1 + self.rule.slack
        if not fits.any():
            self.forced[request] = True
            return int(over.argmin())
        return int(np.where(fits, cost + self.rule.price * over, np.inf).argmin())

    def run(self, step: int) -> None:
        """The tokens of a step, but for first chunks, which count since admission."""
        rows = slice(int(self.requests.start[step]), int(self.requests.start[step + 1]))
        of = self.requests.of_token[rows]
        later = of[self.requests.place[rows] >= self.requests.chunk[of]]
        self.loads += np.bincount(self.rank[later], minlength=len(self.group))
        self.loads[1] *= 1 - 1 / RECENT_STEPS

    def leave(self, request: int) -> None:
        """The request has ended, its cache is freed."""
        self.loads[0, self.rank[request]] -= self.requests.context[request] + self.requests.tokens[request]


def _by_step(step: IntArray) -> Callable[[int], list[int]]:
    """The requests of a step, in order of their ids."""
    order = np.argsort(step, kind="stable")
    edges = np.searchsorted(step[order], np.arange(int(step.max(initial=-1)) + 2)).tolist()
    requests = order.tolist()
    return lambda at: requests[edges[at] : edges[at + 1]] if at + 1 < len(edges) else []
