"""Search for the placement that sends least between nodes while its busiest rank stays as low as the greedy one's.

Annealing on mean load^8 + price · copies that leave a node per token, under nearest-replica dispatch (see
`kernels.reference_traffic`), once per price. Layers do not depend on each other, so every layer then picks among the
placements found for it. Rising prices trace the front from a global placement to one where nodes keep to themselves:
groups of experts that are used together gather on a node without being told.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem, eplb
from easybalance_sim.policies._node_relabel import relabelled
from easybalance_sim.policies._search import FEWEST_WINDOWS, scaled
from easybalance_sim.policies._traffic import Flow, flow_of, tails

NAME = "traffic_search"
PRICES = tuple(0.4 * 1.5**step for step in range(14))
"""0.4, 0.6, 0.9, … 78 per copy and token, in units of mean load^8: what layers are searched at."""
EXCHANGE = tuple(float(price) for price in np.geomspace(0.01, 5, 801))
"""Tail imbalance that a layer may take on for one copy per token less: what layers pick at. Beyond, next to no traffic
is left to be won."""
FRONT = (0.03, 0.1, 0.3, 1.0)
TAIL_SHARE = 0.8
"""Of the fit excess (tail imbalance - 1) of `eplb` that a plan may have: its search has seen the fit windows, EPLB only
their mean, so its fit excess flatters it. Tried between 0.6 and 1.0 on tuning splits of GPT-OSS-20B routing."""
PROPOSALS, MOST_PROPOSALS, PROPOSALS_IN_ALL, PROBE_PROPOSALS = 110_000, 400_000, 40_000_000, 1_000
HOT, COOLING = 0.02, 30.0
"""First temperature per unit of price (at least 1), and how much colder the last one is."""
FINISH_SHARE, FINISH_HOT, FINISH_COLD = 4, 3e-3, 1e-4
"""A last descent, of a fourth of the proposals: what lowers the tail at no traffic shows only when it is cold."""


SAME_COPIES = 1e-6
"""Copies per token and layer by which two points of a front have to differ."""


def place(problem: Problem) -> Plan:
    """The plan with the fewest crossings found whose tail on the fit windows stays below that of `eplb`.

    `NotApplicable` on one node, without a sample of tokens, with fewer than 8 windows and when fewer crossings cost
    tail at every price.
    """
    return _within_tail(problem, options(problem)).plan


def front(problem: Problem) -> list[Plan]:
    """Plans from balanced to few crossings, that of `place` among them when there is one; labels are the tail imbalance
    that a copy per token was traded for. One search serves all."""
    found = options(problem)
    points = [found.traded(price) for price in FRONT]
    with suppress(NotApplicable):
        points.append(_within_tail(problem, found))
    points.sort(key=lambda point: point.price)
    kept = points[:1]
    for point in points[1:]:
        # Sums of float32: what differs by less is the same traffic.
        if point.crossings < kept[-1].crossings - SAME_COPIES:
            kept.append(point)
    return [replace(point.plan, policy=f"{NAME}@{point.price:.4g}") for point in kept]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A plan of the front. price: tail imbalance per copy · tail: mean over layers, see `_traffic.tails` · crossings:
    copies that leave a node per token and layer."""

    plan: Plan
    price: float
    tail: float
    crossings: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Options:
    """Placements to pick from. slots: int32[O, L, P] · crossings, tails: float64[O, L]."""

    start: Plan
    slots: Int32Array
    crossings: FloatArray
    tails: FloatArray

    def picked(self, price: float) -> tuple[IntArray, IntArray]:
        """Index of what every layer takes: the least tail + price · crossings."""
        return (self.tails + price * self.crossings).argmin(axis=0), np.arange(self.start.layers)

    def traded(self, price: float) -> Point:
        """The plan of what the layers take at a price."""
        at = self.picked(price)
        return Point(
            plan=replace(self.start, expert_of_slot=self.slots[at]),
            price=price,
            tail=float(self.tails[at].mean()),
            crossings=float(self.crossings[at].mean()),
        )


def options(problem: Problem, prices: Sequence[float] = PRICES) -> Options:
    """One placement per price and layer; deterministic per seed unless a time budget cuts it short."""
    if len(problem.windows) < FEWEST_WINDOWS:
        raise NotApplicable(f"{len(problem.windows)} windows, a search needs at least {FEWEST_WINDOWS}")
    walk, advance = _Walk.of(problem, len(prices)), problem.progress("searching", Amount(len(prices), "prices"))
    found = []
    for at, price in enumerate(prices):
        found.append(walk.search(price, problem.seed + at * problem.layers))
        advance(1)
    slots, crossings, tail = (np.stack(each) for each in zip(*found, strict=True))
    return Options(start=walk.start, slots=slots, crossings=crossings, tails=tail)


def _within_tail(problem: Problem, found: Options) -> Point:
    base = tails(eplb.place(problem), problem.windows, flow_of(problem), problem.topology).mean()
    limit = 1 + TAIL_SHARE * (base - 1)
    for price in reversed(EXCHANGE):
        if found.tails[found.picked(price)].mean() <= limit:
            return found.traded(price)
    raise NotApplicable("fewer copies between nodes cost a longer tail at every price")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Walk:
    """A problem made ready. tokens: float32[L, E, T] windows with a mean rank load of 1 · proposals: per layer."""

    problem: Problem
    flow: Flow
    start: Plan
    tokens: AnyArray
    proposals: int

    @classmethod
    def of(cls, problem: Problem, searches: int) -> _Walk:
        """The time budget is shared by `searches`; compiling is not on the clock.

        Recorded windows alone: re-batched ones are harder than what EPLB's tail is taken on, and a tail that need not
        be so low is paid for in traffic.
        """
        flow = flow_of(problem)
        start = _start(problem, flow)
        samples = scaled(replace(problem, slot_cost=None, rebatched=None), start)
        tokens = frozen(samples.tokens * np.float32(samples.slope))
        wanted = problem.effort.proposals or min(PROPOSALS, PROPOSALS_IN_ALL // (searches * problem.layers))
        walk = cls(problem=problem, flow=flow, start=start, tokens=tokens, proposals=1)
        if not problem.effort.budget_s:
            return replace(walk, proposals=wanted)
        walk.search(1.0, 0)
        begin = time.perf_counter()
        replace(walk, proposals=PROBE_PROPOSALS).search(1.0, 0)
        spent = time.perf_counter() - begin
        rate, left = PROBE_PROPOSALS / max(spent, 1e-9), max(problem.effort.budget_s - spent, 0.0)
        most = problem.effort.proposals or MOST_PROPOSALS
        return replace(walk, proposals=min(most, max(1, int(left / searches * rate))))

    def search(self, price: float, seed: int) -> tuple[Int32Array, FloatArray, FloatArray]:
        """Placement int32[L, P] found at one price, its crossings and tails float64[L]."""
        hot, finish = HOT * max(price, 1.0), max(1, self.proposals // FINISH_SHARE)
        slots, _ = self._anneal(self.start.expert_of_slot, price, self.proposals, hot, hot / COOLING, seed)
        slots, crossings = self._anneal(slots, price, finish, FINISH_HOT, FINISH_COLD, seed)
        plan = replace(self.start, expert_of_slot=slots)
        return slots, crossings, tails(plan, self.problem.windows, self.flow, self.problem.topology)

    def _anneal(
        self, slots: Int32Array, price: float, proposals: int, hot: float, cold: float, seed: int
    ) -> tuple[Int32Array, FloatArray]:
        topology, flow, layers = self.problem.topology, self.flow, len(slots)
        out, objective, traffic = slots.copy(), np.zeros(layers), np.zeros(layers)
        kernels.load().search_traffic(
            frozen(slots), self.start.rank_of_slot, topology.node_of_rank,
            frozen(topology.speed.mean() / topology.speed, np.float32), self.tokens, flow.share, flow.message,
            flow.ids, flow.source, flow.weight, np.full(layers, price), proposals, np.full(layers, hot),
            np.full(layers, cold), seed, out, objective, traffic,
        )  # fmt: skip
        return out, traffic


def _start(problem: Problem, flow: Flow) -> Plan:
    plan = replace(eplb.place(problem), policy=NAME)
    try:
        return relabelled(plan, flow, problem.topology)
    except NotApplicable:
        return plan
