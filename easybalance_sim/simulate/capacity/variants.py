"""Mechanisms put together: what a variant makes of the placement, the routing and the order of work."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray, Int32Array, IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.simulate.capacity.dispatching import capped, even
from easybalance_sim.simulate.capacity.offsetting import Offset, offset
from easybalance_sim.simulate.capacity.stacking import Stacked, stacked
from easybalance_sim.simulate.capacity.times import Cluster
from easybalance_sim.simulate.capacity.traffic import Demand, draw_counts, step_topics
from easybalance_sim.simulate.layer_queue.micro_batches import dealt_evenly
from easybalance_sim.simulate.replica_choice.choose import choose
from easybalance_sim.simulate.staggering import relabel
from easybalance_sim.simulate.steps.balance import WINDOW_STEPS, ratio, windows_apart
from easybalance_sim.simulate.steps.recorded import rank_loads

MECHANISMS = ("placement", "staggering", "layer_queue", "replicas", "offset", "reroute")
"""placement: fitted on windows, same memory · staggering: ranks relabelled per layer · layer_queue: micro-batches in
flight beside one another, served by a rule · replicas: spare slots, ranks levelled in every step · offset:
light, additive, on the router · reroute: overflow of a rank inside a step."""

LOSSY = ("offset", "reroute")
SENSED = frozenset({"replicas", "reroute"})
"""What has to know the counts of all ranks before a layer's dispatch, which waits for them."""
REPLICA_RULE = "water-filling"
"""Levels ranks at least as well as taking the least loaded one, at nearly the same price."""
PERFECT = "perfect"
"""Not a mechanism: every rank given the same load by decree."""

FIT_TOKENS, FIT_STEPS = 2048, 120
"""Steps that placements are made from: other draws of the same traffic than those that they are judged on."""
SETTLING, PROPOSALS = 6_000, 60_000
"""Per layer, of a placement of few experts (the busiest rank itself, 8 walks) and of one of many."""
FEW_EXPERTS = 24


@dataclass(frozen=True, kw_only=True)
class Step:
    """Assignments of slots int32[S, L, P] and the share that re-routing moved."""

    slot_tokens: Int32Array
    moved: float


class Variants:
    """The variants of one cluster; what two of them share is made once."""

    def __init__(self, cluster: Cluster, like: Variants | None = None) -> None:
        """like: variants of a scenario that may differ in nothing but `service`: all that these have made is shared."""
        self.cluster, self.scenario = cluster, cluster.scenario
        self._plans: dict[frozenset[str], Plan] = {} if like is None else like._plans
        self._offsets: dict[frozenset[str], Offset] = {} if like is None else like._offsets
        self._counts: dict[tuple[int, int, int], Int32Array] = {} if like is None else like._counts
        if like is not None:
            self.in_force, self._past = like.in_force, like._past

    @cached_property
    def in_force(self) -> Stacked:
        """The uneven placement and the traffic that make the described gap."""
        found = self.scenario
        return stacked(found.model, found.traffic, found.heat, found.ranks, found.seed)

    def plan(self, active: frozenset[str]) -> Plan:
        """The placement of a variant."""
        wanted = active & {"placement", "replicas", "staggering"}
        if wanted not in self._plans:
            self._plans[wanted] = self._staggered(wanted) if "staggering" in wanted else self._placed(wanted)
        return self._plans[wanted]

    def offset(self, active: frozenset[str]) -> Offset:
        """What the router offset of a variant changes."""
        wanted = active & {"placement", "replicas"}
        if wanted not in self._offsets:
            share = self.scenario.mechanisms.offset_share
            self._offsets[wanted] = offset(self.in_force.truth, self._placed(wanted), share)
        return self._offsets[wanted]

    def step(self, active: frozenset[str], tokens: int, steps: int) -> Step:
        """Steps of so many tokens as a variant serves them."""
        plan = self.plan(active)
        counts = self.counts(self.offset(active).truth if "offset" in active else self.in_force.truth, tokens, steps)
        if PERFECT in active:
            return Step(slot_tokens=even(counts, plan), moved=0.0)
        slots = self._chosen(counts, plan) if "replicas" in active else dealt_evenly(counts, plan)
        if "reroute" not in active:
            return Step(slot_tokens=slots, moved=0.0)
        below, moved = capped(slots, plan, self.scenario.mechanisms.cap)
        return Step(slot_tokens=below, moved=moved)

    @staticmethod
    def _chosen(counts: Int32Array, plan: Plan) -> Int32Array:
        """int32[S, L, P] with replicas chosen in every step."""
        return choose(counts, plan, REPLICA_RULE).took

    def counts(self, truth: Demand, tokens: int, steps: int) -> Int32Array:
        """int32[S, L, E]; the same topics of a step whatever the routing."""
        key = (id(truth), tokens, steps)
        if key not in self._counts:
            self._counts[key] = draw_counts(truth, self._topics(tokens, steps, "judged"), self.scenario.seed)
        return self._counts[key]

    def _topics(self, tokens: int, steps: int, purpose: str) -> IntArray:
        seed = self.scenario.seed + (10_000 if purpose == "fit" else 0)
        return step_topics(self.in_force.truth.mix, self.scenario.traffic, tokens, steps, seed)

    @cached_property
    def _past(self) -> Int32Array:
        """int32[S, L, E] what placements are made from."""
        topics = self._topics(FIT_TOKENS, FIT_STEPS, "fit")
        return draw_counts(self.in_force.truth, topics, self.scenario.seed + 10_000)

    def _placed(self, wanted: frozenset[str]) -> Plan:
        """Without staggering. Replicas need a placement that has room for them, so they bring one."""
        if not wanted & {"placement", "replicas"}:
            return self.in_force.plan
        each = self.scenario.model.experts // self.scenario.ranks
        if "replicas" in wanted:
            each += self.scenario.mechanisms.spare_slots
            if self.cluster.room_with(each) <= 0:
                spare = self.scenario.mechanisms.spare_slots
                raise UsageError(
                    f"{spare} redundant slots per rank and layer do not fit into memory beside the model",
                    where="scenario: mechanisms.spare_slots",
                    fix="give fewer, at least 1",
                )
        problem = self._problem(each)
        plans = [policies.make("eplb", problem)]
        if "placement" in wanted:
            with suppress(NotApplicable):
                plans.insert(0, policies.make("window_search", problem))
        # A search for replicas that share evenly is not always the best for replicas that take what is left.
        return min(plans, key=self._unevenness) if "replicas" in wanted else plans[0]

    def _problem(self, slots_per_rank: int) -> Problem:
        counts, experts = self._past.astype(np.int64), self.scenario.model.experts
        return Problem(
            forecast=counts.mean(axis=0),
            windows=windows_apart(counts, WINDOW_STEPS),
            topology=self.cluster.topology(slots_per_rank),
            seed=self.scenario.seed,
            window_steps=float(WINDOW_STEPS),
            top_k=self.scenario.model.top_k,
            effort=Effort(proposals=SETTLING if experts <= FEW_EXPERTS else PROPOSALS),
        )

    def _unevenness(self, plan: Plan) -> float:
        """Max/mean rank load of past steps with replicas chosen in every step."""
        slots = self._chosen(self._past[::WINDOW_STEPS], plan)
        return float(ratio(np.add.reduceat(slots, plan.slot_start[:-1], axis=2).astype(np.float64)).mean())

    def _staggered(self, wanted: frozenset[str]) -> Plan:
        plan = self._placed(wanted - {"staggering"})
        free = relabel.freedom(plan, self.cluster.topology(int(plan.slots_per_rank[0])))
        windows = self._window_loads(plan)
        return relabel.relabelled(plan, relabel.search(windows, free, seed=self.scenario.seed))

    def _window_loads(self, plan: Plan) -> FloatArray:
        return windows_apart(rank_loads(self._past, plan), WINDOW_STEPS)
