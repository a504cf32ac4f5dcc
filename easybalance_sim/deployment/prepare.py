"""From a scenario to what can be served: a plan before and one after in every pool, and the requests."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from msgspec.structs import replace as replaced

from easybalance_sim.cluster.topology import Topology, topology_of
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import Ground, ground_of
from easybalance_sim.deployment.placing import PROPOSALS, place, without_replicas
from easybalance_sim.deployment.replanning import schedule
from easybalance_sim.deployment.routing import routing_trace
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.schedule import joined
from easybalance_sim.deployment.stations import Station, evened, station
from easybalance_sim.errors import UsageError
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.simulate.serving.routed import strangers
from easybalance_sim.simulate.serving.workload import Workload

BEFORE, AFTER, EVEN = "before", "after", "even"
KEYS = (BEFORE, AFTER, EVEN)
"""What can be served: the plan before, the plan after, and the plan after with all ranks loaded alike by decree."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """scenario · ground · before, after: a station per pool · workload: the requests as the scenario has them."""

    scenario: Scenario
    ground: Ground
    before: tuple[Station, ...]
    after: tuple[Station, ...]
    workload: Workload

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
    ground = ground_of_scenario(scenario, tell) if ground is None else ground
    workload = scenario.workload()
    prompt = float((workload.prompt_tokens - workload.cached_tokens).mean())
    placed = partial(_placed, scenario, ground, prompt, tell)
    before = tuple(placed(pool, _before(pool, ground), pool.placement.before) for pool in scenario.pools)
    if scenario.rebalance is None:
        after = tuple(placed(pool, topology_of(pool.cluster), pool.placement.after) for pool in scenario.pools)
    else:
        after = tuple(_in_turn(scenario, ground, prompt, tell, workload, first) for first in before)
    ready = Prepared(scenario=scenario, ground=ground, before=before, after=after, workload=workload)
    if len(workload.tenants) > 1:
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


def workload_at(scenario: Scenario, rate_per_s: float) -> Workload:
    """Requests at that rate in the scenario's time and rhythm: bursts and tenants come when they come there. Raises
    `UsageError` for a rate that is not > 0."""
    if not scenario.arrivals.tenants:
        arrivals = replaced(scenario.arrivals, rate_per_s=rate_per_s)
        return arrivals.workload(scenario.run.duration_s, scenario.run.seed)
    if not rate_per_s > 0:
        raise UsageError(f"is {rate_per_s:g}", where="rate", fix="give more than 0")
    factor = rate_per_s / scenario.workload().rate_per_s
    tenants = [replaced(one, rate_per_s=one.rate_per_s * factor) for one in scenario.arrivals.tenants]
    arrivals = replaced(scenario.arrivals, tenants=tuple(tenants))
    # What chance added or took is stretched away, so that two runs at one rate have one rate.
    return arrivals.workload(scenario.run.duration_s, scenario.run.seed).at_rate(rate_per_s)


def _before(pool: Pool, ground: Ground) -> Topology:
    """The cluster with the slots of the plan before."""
    topology = topology_of(pool.cluster)
    if not pool.placement.slots_before:
        return without_replicas(topology, ground.shape.experts)
    return replace(topology, slots_per_rank=np.full(topology.ranks, pool.placement.slots_before))


def _placed(
    scenario: Scenario, ground: Ground, prompt_tokens: float, tell: Listener, pool: Pool, topology: Topology, name: str
) -> Station:
    """The plan of that name in a pool with the topology's slots."""
    session = _session(ground, pool, topology)
    plan = place(ground, session, name, tell, proposals=pool.placement.proposals or PROPOSALS)
    return station(ground, pool, session, plan, prompt_tokens=prompt_tokens, seed=scenario.run.seed)


def _in_turn(
    scenario: Scenario, ground: Ground, prompt_tokens: float, tell: Listener, workload: Workload, first: Station
) -> Station:
    """Plans that are made anew while they serve, in the pool of the plan that is there first."""
    pool = first.pool
    session = _session(ground, pool, topology_of(pool.cluster))
    turns = schedule(scenario, ground, pool, session, first.plan, workload, tell)
    stations = [
        station(ground, pool, session, plan, prompt_tokens=prompt_tokens, seed=scenario.run.seed)
        for plan in turns.plans
    ]
    return replace(stations[-1], model=joined([one.model for one in stations]), schedule=turns)


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
