"""Heterogeneous GPUs: a rank, or a whole node, that has become slow without the plan knowing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Session
from easybalance_sim.planning.stress.cases import Case
from easybalance_sim.planning.stress.stretch import Stretch, bench_on
from easybalance_sim.replay.expected import even_rank_tokens

SLOWED = 0.8
"""Speed of what has become slow, of what it was."""


def speed_cases(
    baseline: Plan, plan: Plan, traffic: Stretch, session: Session, expert_tokens: AnyArray
) -> Iterator[Case]:
    """Either plan with the rank slowed that it loads most itself, then with the node, where there are several: any may
    become slow, and that is each plan's worst.

    expert_tokens: [L, E] assignments of the traffic. A case's lower bound is that of plans that know the speeds.
    """
    topology = session.topology
    units = {"hottest rank": np.arange(topology.ranks)}
    if topology.nodes > 1:
        units["hottest node"] = topology.node_of_rank
    for name, unit in units.items():
        slow = [_hottest(one, topology, unit, expert_tokens) for one in (baseline, plan)]
        before, after = (
            traffic.replay([one], bench_on(session, _slowed(topology, unit == place)))[0]
            for one, place in zip((baseline, plan), slow, strict=True)
        )
        sides = dict(zip(("baseline", "plan"), ({"slowed": place} for place in slow), strict=True))
        yield Case(name=name, before=before, after=after, seed=session.settings.seed, extra=sides)


def _hottest(plan: Plan, topology: Topology, unit: IntArray, expert_tokens: AnyArray) -> int:
    """The unit (int64[R] of each rank) that a plan keeps busy longest."""
    busy = even_rank_tokens(expert_tokens[None], plan).sum(axis=(0, 1)) / topology.speed
    return int(np.bincount(unit, weights=busy).argmax())


def _slowed(topology: Topology, ranks: AnyArray) -> Topology:
    return replace(topology, speed=np.where(ranks, topology.speed * SLOWED, topology.speed))
