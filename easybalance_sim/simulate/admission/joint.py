"""Placement and admission planned for each other, on past requests alone.

Alternately: with the requests where admission sends them, the search for few copies between nodes moves experts to the
nodes whose tokens use them; with these placements, what a request would send away from each node sends it there.
Several placements from balanced to few crossings are then tried with several prices of load, all replayed on the past
requests, and the one with the fewest crossings is taken whose tail of rank loads is well below that of `eplb`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, Int16Array, IntArray, frozen, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.load.sampling import TokenSample
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, Problem, traffic_search
from easybalance_sim.simulate.admission.admit import Admitted, Rule, admit
from easybalance_sim.simulate.admission.judged import Course, Judged, judge
from easybalance_sim.simulate.admission.requests import Requests
from easybalance_sim.simulate.steps.balance import windows_apart
from easybalance_sim.simulate.steps.recorded import RecordedSteps

PRICES = (0.5, 2.0, 5.0, 12.0, 30.0)
"""At which placements are searched, see `policies.traffic_search.PRICES`."""
EXCHANGE = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Tail imbalance that a copy per token is traded for: the placements that are tried."""
MIDDLE = 0.3
"""The one of them that requests are admitted by between turns."""
TURNS = 2
SAMPLED = 3000
"""Tokens of past requests that a search looks at."""
PROPOSALS, PROPOSALS_IN_ALL = 16_000, 1_200_000
"""Per layer and price, and over all layers and prices of one turn; with twice as many, half a point fewer copies."""
TAIL_SHARE = 0.85
"""Of the tail excess of `eplb` on past requests that a choice may have: its search has seen these requests. Chosen
among 0.8, 0.9 and 1.0 on tuning seeds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Past:
    """Past requests, and how plans are made from them. domains: the cluster with the groups of ranks that copies should
    not leave as its nodes · mode: all-to-all mode that is paid · proposals: of one search, per layer, 0 = by size."""

    steps: RecordedSteps
    requests: Requests
    course: Course
    domains: Topology
    mode: str
    seed: int = 0
    proposals: int = 0

    def problem(self, source: Int16Array | None = None) -> Problem:
        """What policies place; source: int16[T] rank at which each token enters, None = anywhere."""
        # Windows begin with the first step, for requests do: what does not come out even is at the end.
        even = len(self.steps) // self.course.window * self.course.window
        windows = frozen(windows_apart(self.steps.counts[: even or None], self.course.window), np.int64)
        rows = np.arange(self.steps.tokens)
        if len(rows) > SAMPLED:
            rows = np.sort(stream(self.seed, "admission sample").permutation(rows)[:SAMPLED])
        node = np.full(len(rows), -1) if source is None else self.domains.node_of_rank[source[rows]]
        return Problem(
            forecast=windows.mean(axis=0),
            windows=windows,
            topology=self.domains,
            groups=self.steps.meta.groups,
            seed=self.seed,
            window_steps=self.course.window,
            top_k=self.steps.meta.top_k,
            sample=TokenSample(experts=self.steps.experts[rows], source_node=node.astype(np.int16)),
            per_assignment=self.mode == "low_latency",
            effort=Effort(proposals=self.proposals or self._by_size()),
        )

    def _by_size(self) -> int:
        return max(1, min(PROPOSALS, PROPOSALS_IN_ALL // (len(PRICES) * self.steps.layers)))

    def judge(self, plan: Plan, admitted: Admitted) -> Judged:
        """On the past requests themselves, while they come."""
        source = admitted.source(self.requests)
        return judge(self.course, plan, self.steps, source, 0, int(self.requests.first.max()) + 1, [self.mode])

    def copies(self, judged: Judged) -> float:
        """Per token and layer that left the domains."""
        crossing = judged.crossing[self.mode]
        apart = self.domains.nodes == self.domains.ranks
        return crossing.rank_copies_per_token if apart else crossing.copies_per_token


CostUnder = Callable[[Plan], FloatArray]
"""float64[Q, G] what each past request costs in each group under a plan."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A plan and the price of load that admission goes with it; judged: on the past requests."""

    plan: Plan
    rule: Rule
    judged: Judged


def plan_jointly(
    past: Past,
    start: FloatArray,
    cost: CostUnder,
    rules: Sequence[Rule],
    limit: float,
    probed: IntArray,
) -> Choice:
    """The plan and the rule found.

    start: float64[Q, G] costs to begin with · rules: that are tried, the first while planning · limit: tail of rank
    loads on the past requests that the choice has to keep · probed: int64[Q] as in `admit`.
    """

    def admitted(costs: FloatArray, rule: Rule) -> Admitted:
        return admit(past.requests, costs, past.domains.node_of_rank, rule, probed)

    costs = start
    for _ in range(TURNS):
        source = admitted(costs, rules[0]).source(past.requests)
        found = traffic_search.options(past.problem(source), PRICES)
        costs = cost(found.traded(MIDDLE).plan)
    tried = [
        Choice(plan=plan, rule=rule, judged=past.judge(plan, admitted(costs, rule)))
        for plan in _distinct(found)
        for costs in [cost(plan)]
        for rule in rules
    ]
    return fewest(past, tried, limit)


def plan_alone(past: Past, admitted: Admitted, limit: float) -> Choice:
    """The same search and the same choice for requests that are admitted without a look at experts."""
    found = traffic_search.options(past.problem(), PRICES)
    tried = [Choice(plan=plan, rule=Rule(), judged=past.judge(plan, admitted)) for plan in _distinct(found)]
    return fewest(past, tried, limit)


def fewest(past: Past, tried: Sequence[Choice], limit: float) -> Choice:
    """The fewest copies of those whose tail keeps the limit, the lowest tail when none does."""
    within = [one for one in tried if one.judged.balance.window_p99 <= limit]
    if not within:
        return min(tried, key=lambda one: one.judged.balance.window_p99)
    return min(within, key=lambda one: past.copies(one.judged))


def tail_limit(judged: Judged) -> float:
    """The tail that a choice may have where `eplb` has that of `judged`."""
    return 1 + TAIL_SHARE * (judged.balance.window_p99 - 1)


def _distinct(found: traffic_search.Options) -> list[Plan]:
    plans: dict[bytes, Plan] = {}
    for price in EXCHANGE:
        plan = replace(found.traded(price).plan, policy=f"{traffic_search.NAME}@{price:g}")
        plans.setdefault(plan.expert_of_slot.tobytes(), plan)
    return list(plans.values())
