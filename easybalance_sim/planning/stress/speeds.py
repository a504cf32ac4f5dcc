"""Heterogeneous GPUs: a rank, or a whole node, that has become slow without the plan knowing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Session
from easybalance_sim.planning.stress.cases import Case, figures
from easybalance_sim.planning.stress.stretch import Stretch, bench_on
from easybalance_sim.policies import Problem
from easybalance_sim.replay.expected import even_rank_tokens

SLOWED = 0.8
"""Speed of what has become slow, of what it was."""


def speed_cases(
    baseline: Plan, plan: Plan, traffic: Stretch, session: Session, load: FloatArray | None, expert_tokens: AnyArray
) -> Iterator[Case]:
    """Either plan with the rank slowed that it loads most itself, then with the node, where there are several: any may
    become slow, and that is each plan's worst.

    load: float64[L, E] of the past, None = not known · expert_tokens: [L, E] assignments of the traffic. `knowing` says
    what re-planning would reach: the greedy plan of the past load for these speeds, with as many slots.
    """
    topology = session.topology
    units = {"hottest rank": np.arange(topology.ranks)}
    if topology.nodes > 1:
        units["hottest node"] = topology.node_of_rank
    for name, unit in units.items():
        slow = [_hottest(one, topology, unit, expert_tokens) for one in (baseline, plan)]
        of_baseline, of_plan = (_slowed(topology, unit == place) for place in slow)
        (before,) = traffic.replay([baseline], bench_on(session, of_baseline))
        knows = [] if load is None else [_knowing(plan, of_plan, load)]
        after, *best = traffic.replay([plan, *knows], bench_on(session, of_plan))
        yield Case(
            name=name,
            before=before,
            after=after,
            seed=session.settings.seed,
            about={"knowing": figures(best[0]) if best else None},
            extra={"baseline": {"slowed": slow[0]}, "plan": {"slowed": slow[1]}},
        )


def _hottest(plan: Plan, topology: Topology, unit: IntArray, expert_tokens: AnyArray) -> int:
    """The unit (int64[R] of each rank) that a plan keeps busy longest."""
    busy = even_rank_tokens(expert_tokens[None], plan).sum(axis=(0, 1)) / topology.speed
    return int(np.bincount(unit, weights=busy).argmax())


def _knowing(plan: Plan, topology: Topology, load: FloatArray) -> Plan:
    problem = Problem(
        forecast=load,
        windows=np.zeros((0, *load.shape), np.int64),
        topology=replace(topology, slots_per_rank=plan.slots_per_rank),
    )
    return policies.make("eplb", problem)


def _slowed(topology: Topology, ranks: AnyArray) -> Topology:
    return replace(topology, speed=np.where(ranks, topology.speed * SLOWED, topology.speed))
