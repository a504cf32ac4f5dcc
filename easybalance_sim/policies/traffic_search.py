"""Search for the placement that sends least between nodes while its busiest rank stays as low as the greedy one's.

Annealing on mean load^8 + price · copies that leave a node per token, under nearest-replica dispatch (see
`kernels.reference_traffic`). Rising prices trace the front from a global placement to one where nodes keep to
themselves; groups of experts that are used together gather on a node without being told.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem, eplb
from easybalance_sim.policies._node_relabel import relabelled
from easybalance_sim.policies._search import FEWEST_WINDOWS, scaled
from easybalance_sim.policies._traffic import Flow, copies_per_token, flow_of, tail

PRICES = tuple(2.0 ** (half / 2) for half in range(13))
"""1, 1.4, 2, … 64."""
TAIL_SHARE = 0.9
"""Of the fit excess (tail imbalance - 1) of `eplb` that a plan may have: its search has seen the fit windows, EPLB only
their mean, so its fit excess flatters it. Between 0.85 and 1.0, tried on tuning splits of GPT-OSS-20B routing."""
PROPOSALS, PROBE_PROPOSALS = 100_000, 1_000
HOT, COOLING = 0.02, 30.0
"""First temperature per unit of price (at least 1), and how much colder the last one is."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A point of the front. price: of a copy per token in units of mean load^8 · tail_imbalance: mean over layers of
    the P99 over fit windows of busiest / mean rank · crossings: copies that leave a node per token and layer."""

    plan: Plan
    price: float
    tail_imbalance: float
    crossings: float


def place(problem: Problem) -> Plan:
    """The plan with the fewest crossings found whose tail on the fit windows stays below that of `eplb`.

    The tail grows with the price, so `PRICES` is bisected. `NotApplicable` on one node, without a sample of tokens,
    with fewer than 8 windows and when every price costs tail.
    """
    if len(problem.windows) < FEWEST_WINDOWS:
        raise NotApplicable(f"{len(problem.windows)} windows, a search needs at least {FEWEST_WINDOWS}")
    searches = len(PRICES).bit_length()
    walk, advance = _Walk.of(problem, searches), problem.progress("searching", searches)
    limit = 1 + TAIL_SHARE * (walk.tail(eplb.place(problem)) - 1)
    low, high, good = 0, len(PRICES), []
    while low < high:
        middle = (low + high) // 2
        option = walk.option(PRICES[middle])
        advance(1)
        if option.tail_imbalance <= limit:
            low = middle + 1
            good.append(option)
        else:
            high = middle
    if not good:
        raise NotApplicable("fewer copies between nodes cost a longer tail at every price")
    return min(good, key=lambda option: option.crossings).plan


def pareto(problem: Problem, prices: Sequence[float]) -> list[Option]:
    """One plan per price, in the order given; deterministic per seed unless a time budget cuts it short."""
    walk, advance = _Walk.of(problem, len(prices)), problem.progress("searching", len(prices))
    front = []
    for price in prices:
        front.append(walk.option(price))
        advance(1)
    return front


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
        """The time budget is shared by `searches`; compiling is not on the clock."""
        flow = flow_of(problem)
        start = _start(problem, flow)
        samples = scaled(replace(problem, slot_cost=None), start)
        tokens = frozen(samples.tokens * np.float32(samples.slope))
        wanted = problem.effort.proposals or PROPOSALS
        walk = cls(problem=problem, flow=flow, start=start, tokens=tokens, proposals=1)
        if not problem.effort.budget_s:
            return replace(walk, proposals=wanted)
        walk.search(1.0)
        begin = time.perf_counter()
        replace(walk, proposals=PROBE_PROPOSALS).search(1.0)
        spent = time.perf_counter() - begin
        rate, left = PROBE_PROPOSALS / max(spent, 1e-9), max(problem.effort.budget_s - spent, 0.0)
        return replace(walk, proposals=min(wanted, max(1, int(left / searches * rate))))

    def option(self, price: float) -> Option:
        """Search at one price."""
        plan = self.search(price)
        crossings = copies_per_token(plan, self.flow, self.problem.topology.node_of_rank)
        return Option(plan=plan, price=price, tail_imbalance=self.tail(plan), crossings=crossings)

    def tail(self, plan: Plan) -> float:
        """On the fit windows."""
        return tail(plan, self.problem.windows, self.flow, self.problem.topology)

    def search(self, price: float) -> Plan:
        """The placement found at one price."""
        topology, start, flow, hot = self.problem.topology, self.start, self.flow, HOT * max(price, 1.0)
        out, objective, traffic = start.expert_of_slot.copy(), np.zeros(start.layers), np.zeros(start.layers)
        kernels.load().search_traffic(
            start.expert_of_slot, start.rank_of_slot, topology.node_of_rank,
            frozen(topology.speed.mean() / topology.speed, np.float32), self.tokens, flow.share, flow.message,
            flow.ids, flow.source, flow.weight, float(price), self.proposals, hot, hot / COOLING, self.problem.seed,
            out, objective, traffic,
        )  # fmt: skip
        return replace(start, expert_of_slot=out)


def _start(problem: Problem, flow: Flow) -> Plan:
    plan = replace(eplb.place(problem), policy="traffic_search")
    try:
        return relabelled(plan, flow, problem.topology)
    except NotApplicable:
        return plan
