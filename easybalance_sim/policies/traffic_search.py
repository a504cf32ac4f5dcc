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

PRICES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
PROPOSALS = 60_000
PROBE_PROPOSALS = 1_000
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
    """The plan with the fewest crossings whose tail on the fit windows is no worse than that of `eplb`.

    `NotApplicable` on one node, without a sample of tokens, with fewer than 8 windows and when every price costs tail.
    """
    if len(problem.windows) < FEWEST_WINDOWS:
        raise NotApplicable(f"{len(problem.windows)} windows, a search needs at least {FEWEST_WINDOWS}")
    flow = flow_of(problem)
    limit = tail(eplb.place(problem), problem.windows, flow, problem.topology)
    good = [option for option in pareto(problem, PRICES) if option.tail_imbalance <= limit]
    if not good:
        raise NotApplicable("fewer copies between nodes cost a longer tail at every price")
    return min(good, key=lambda option: option.crossings).plan


def pareto(problem: Problem, prices: Sequence[float]) -> list[Option]:
    """One plan per price, in the order given; deterministic per seed unless a time budget cuts it short."""
    flow, start = flow_of(problem), _start(problem)
    tokens = _tokens(problem, start)
    proposals = _affordable(problem, flow, start, tokens, len(prices))
    advance = problem.progress("searching", len(prices))
    front = []
    for price in prices:
        plan = _search(problem, flow, start, tokens, price, proposals)
        front.append(
            Option(
                plan=plan,
                price=price,
                tail_imbalance=tail(plan, problem.windows, flow, problem.topology),
                crossings=copies_per_token(plan, flow, problem.topology.node_of_rank),
            )
        )
        advance(1)
    return front


def _start(problem: Problem) -> Plan:
    plan = replace(eplb.place(problem), policy="traffic_search")
    try:
        return relabelled(plan, flow_of(problem), problem.topology)
    except NotApplicable:
        return plan


def _tokens(problem: Problem, start: Plan) -> AnyArray:
    """float32[L, E, T] windows with a mean rank load of 1."""
    samples = scaled(replace(problem, slot_cost=None), start)
    return frozen(samples.tokens * np.float32(samples.slope))


def _search(problem: Problem, flow: Flow, start: Plan, tokens: AnyArray, price: float, proposals: int) -> Plan:
    topology, hot = problem.topology, HOT * max(price, 1.0)
    out, objective, traffic = start.expert_of_slot.copy(), np.zeros(start.layers), np.zeros(start.layers)
    kernels.load().search_traffic(
        start.expert_of_slot, start.rank_of_slot, topology.node_of_rank,
        frozen(topology.speed.mean() / topology.speed, np.float32), tokens, flow.share, flow.message, flow.ids,
        flow.source, flow.weight, float(price), proposals, hot, hot / COOLING, problem.seed, out, objective, traffic,
    )  # fmt: skip
    return replace(start, expert_of_slot=out)


def _affordable(problem: Problem, flow: Flow, start: Plan, tokens: AnyArray, searches: int) -> int:
    """Proposals per layer and price that the effort allows; compiling is not on the clock."""
    wanted = problem.effort.proposals or PROPOSALS
    if not problem.effort.budget_s:
        return wanted
    _search(problem, flow, start, tokens, 1.0, 1)
    begin = time.perf_counter()
    _search(problem, flow, start, tokens, 1.0, PROBE_PROPOSALS)
    spent = time.perf_counter() - begin
    left = max(problem.effort.budget_s - spent, 0.0)
    return min(wanted, max(1, int(left / searches / max(spent, 1e-9) * PROBE_PROPOSALS)))
