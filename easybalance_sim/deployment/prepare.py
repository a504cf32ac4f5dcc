"""From a scenario to what can be served: a plan before and one after in every pool, and the requests."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec.structs import replace as replaced

from easybalance_sim.cluster.topology import Topology, topology_of
from easybalance_sim.deployment.choosing import Choice, choose
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import Ground, ground_of
from easybalance_sim.deployment.placing import PROPOSALS, place, without_replicas
from easybalance_sim.deployment.replanning import schedule
from easybalance_sim.deployment.routing import routing_trace
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.schedule import joined
from easybalance_sim.deployment.stations import HIDDEN, Station, evened, station
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.simulate.serving.routed import strangers
from easybalance_sim.simulate.serving.workload import Workload

AUTO = "auto"
OTHER_CHANCE = 1000
"""Between the seeds that a plan is chosen by and those that it serves with."""
BEFORE, AFTER, EVEN = "before", "after", "even"
KEYS = (BEFORE, AFTER, EVEN)
"""What can be served: the plan before, the plan after, and the plan after with all ranks loaded alike by decree."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """scenario · ground · before, after: a station per pool · workload: the requests as the scenario has them ·
    choices: how the plans after were chosen, one per pool, empty where the scenario names a plan for any."""

    scenario: Scenario
    ground: Ground
    before: tuple[Station, ...]
    after: tuple[Station, ...]
    workload: Workload
    choices: tuple[Choice, ...] = ()

    @cached_property
    def even(self) -> tuple[Station, ...]:
        """The plan after, its ranks loaded alike by decree."""
        return tuple(replace(one, model=evened(one.model)) for one in self.after)

    def stations(self, key: str) -> tuple[Station, ...]:
        """Those of one of `KEYS`."""
        found: tuple[Station, ...] = getattr(self, key)
        return found


def prepare(scenario: Scenario, tell: Listener, ground: Ground | None = None) -> Prepared:
    """Make all that serving needs. ground: of the same model and routing, when it is there already.

    Raises `EbsimError` subclasses for anything that does not fit together.
    """
    if ground is None:
        ground = ground_of_scenario(scenario, tell)
        for sentence in dict.fromkeys(topology_of(pool.cluster).uneven for pool in scenario.pools):
            if sentence is not None:
                tell.note(sentence)
    workload = scenario.workload()
    prompt = float((workload.prompt_tokens - workload.cached_tokens).mean())
    making = _Making(scenario=scenario, ground=ground, workload=workload, prompt_tokens=prompt, tell=tell)
    before = tuple(making.placed(pool, _before(pool, ground), pool.placement.before) for pool in scenario.pools)
    after = tuple(making.after(first) for first in before)
    ready = Prepared(
        scenario=scenario,
        ground=ground,
        before=before,
        after=after,
        workload=workload,
        choices=tuple(making.choices) if len(making.choices) == len(before) else (),
    )
    if len(workload.tenants) > 1 or scenario.arrivals.files:
        for tenant in strangers(ground.routed, workload):
            tell.note(f"the routing trace has no workload {tenant!r}: its requests are routed like any")
    return ready


def ground_of_scenario(scenario: Scenario, tell: Listener) -> Ground:
    """The routing trace of a scenario, put together where it is not there as a file."""
    folder = Path(tempfile.mkdtemp(prefix="ebsim-routing-"))
    try:
        paths = routing_trace(scenario.routing, scenario.shape, folder, tell)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return ground_of(paths, scenario.shape, tell, serve=scenario.routing.serve, seed=scenario.run.seed, folder=folder)


def workload_at(scenario: Scenario, rate_per_s: float, seed: int | None = None) -> Workload:
    """Requests at that rate in the scenario's time and rhythm: bursts and tenants come when they come there. seed: of
    streams, None = the scenario's. Raises `UsageError` for a rate that is not > 0."""
    if not rate_per_s > 0:
        raise UsageError(f"is {rate_per_s:g}", where="rate", fix="give more than 0")
    span_s, seed = scenario.run.duration_s + scenario.tail_s, scenario.run.seed if seed is None else seed
    if not scenario.arrivals.tenants:
        return replaced(scenario.arrivals, rate_per_s=rate_per_s).workload(span_s, seed)
    factor = rate_per_s / scenario.workload().rate_per_s
    tenants = [replaced(one, rate_per_s=one.rate_per_s * factor) for one in scenario.arrivals.tenants]
    arrivals = replaced(scenario.arrivals, tenants=tuple(tenants))
    # What chance added or took is stretched away, so that two runs at one rate have one rate.
    return arrivals.workload(span_s, seed).at_rate(rate_per_s)


def _before(pool: Pool, ground: Ground) -> Topology:
    """The cluster with the slots of the plan before."""
    topology = topology_of(pool.cluster)
    if not pool.placement.slots_before:
        return without_replicas(topology, ground.shape.experts)
    return replace(topology, slots_per_rank=np.full(topology.ranks, pool.placement.slots_before))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Making:
    """What every station of a scenario is made from; choices: grows with the plans that are chosen."""

    scenario: Scenario
    ground: Ground
    workload: Workload
    prompt_tokens: float
    tell: Listener
    choices: list[Choice] = field(default_factory=list)

    def placed(self, pool: Pool, topology: Topology, name: str) -> Station:
        """The plan of that name in a pool with the topology's slots."""
        session = _session(self.ground, pool, topology)
        return self.ready(pool, session, place(self.ground, session, name, self.tell, proposals=_proposals(pool)))

    def after(self, first: Station) -> Station:
        """What follows the plan that is there first: plans in turn, the best candidate, or the plan that is named."""
        pool = first.pool
        topology = topology_of(pool.cluster)
        if self.scenario.rebalance is not None:
            return self._in_turn(first, topology)
        if pool.placement.after != AUTO:
            return self.placed(pool, topology, pool.placement.after)
        session = _session(self.ground, pool, topology)
        choice = choose(
            self.ground.rehearsals, pool, session, self._rehearsed(first), self.workload,
            HIDDEN[self.scenario.run.overlap], self.tell,
            proposals=_proposals(pool), prompt_tokens=self.prompt_tokens, seed=self.scenario.run.seed + OTHER_CHANCE,
        )  # fmt: skip
        plan = first.plan
        while choice.worth:
            try:
                plan = place(self.ground, session, choice.policy, self.tell, proposals=_proposals(pool))
                break
            except UsageError:
                # What a search is worth is judged by windows, of which there are twice as many here.
                choice = replace(choice, worth=choice.worth[1:])
        self.choices.append(choice)
        return self.ready(pool, session, plan)

    def _rehearsed(self, first: Station) -> list[Plan]:
        """The plan before as it would be made where candidates are: none knows more requests than the others."""
        name, halves = first.pool.placement.before, self.ground.rehearsals
        if name.endswith(".json"):
            return [first.plan] * len(halves)
        proposals = _proposals(first.pool)
        return [place(half, first.session, name, self.tell, proposals=proposals) for half in halves]

    def ready(self, pool: Pool, session: Session, plan: Plan) -> Station:
        """A plan with its step model."""
        seed = self.scenario.run.seed
        return station(self.ground, pool, session, plan, prompt_tokens=self.prompt_tokens, seed=seed)

    def _in_turn(self, first: Station, topology: Topology) -> Station:
        """Plans that are made anew while they serve."""
        session = _session(self.ground, first.pool, topology)
        turns = schedule(self.scenario, self.ground, first.pool, session, first.plan, self.workload, self.tell)
        stations = [self.ready(first.pool, session, plan) for plan in turns.plans]
        return replace(stations[-1], model=joined([one.model for one in stations]), schedule=turns)


def _proposals(pool: Pool) -> int:
    return pool.placement.proposals or PROPOSALS


def _session(ground: Ground, pool: Pool, topology: Topology) -> Session:
    placement = pool.placement
    return ground.on(
        topology,
        pool.role,
        rule=placement.dispatch,
        mode=placement.all_to_all,
        window_steps=placement.window_steps,
        expert_ranks=pool.engine.expert_tensor,
    )
