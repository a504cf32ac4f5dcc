"""Placements that mechanisms on single steps are compared on, each made from the counts of earlier steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, Problem
from easybalance_sim.simulate.steps.balance import WINDOW_STEPS, windows_apart
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import TraceMeta

PROPOSALS = 1_000_000
"""Per layer."""


def contiguous(layers: int, experts: int, ranks: int) -> Plan:
    """Expert e in slot e of every layer, no redundant slots: what an engine does without a plan."""
    problem = Problem(
        forecast=np.ones((layers, experts)),
        windows=np.ones((1, layers, experts), np.int64),
        topology=uniform(ranks, ranks, -(-experts // ranks)),
    )
    return policies.make("contiguous", problem)


def stacked(past_counts: AnyArray, ranks: int) -> Plan:
    """Made badly on purpose: rank 0 holds the hottest experts of every layer, rank 1 the next, and so on.

    past_counts: int[S, L, E] assignments. The case in which heat adds up over layers.
    """
    load = np.asarray(past_counts).sum(axis=0)
    layers, experts = load.shape
    plan = contiguous(layers, experts, ranks)
    hottest_first = np.argsort(-load, axis=1, kind="stable")
    return replace(plan, expert_of_slot=frozen(hottest_first[:, plan.expert_of_slot[0]], np.int32), policy="stacked")


def planned(
    policy: str,
    past: RecordedSteps,
    ranks: int,
    slots_per_rank: int,
    seed: int = 0,
    proposals: int = PROPOSALS,
    *,
    window: int = WINDOW_STEPS,
    topology: Topology | None = None,
) -> Plan:
    """The plan that a policy makes from the steps of `past`, the load of which is the forecast.

    proposals: per layer, of a search · window: steps whose counts a search looks at together · topology: None = equal
    ranks on one node. Raises what `policies.make` does, thus `NotApplicable` where a search has nothing to gain.
    """
    where = uniform(ranks, ranks, slots_per_rank) if topology is None else topology
    return policies.make(policy, problem_of(past.counts, past.meta, where, window, seed, proposals))


def problem_of(
    counts: AnyArray, meta: TraceMeta, topology: Topology, window: int, seed: int, proposals: int
) -> Problem:
    """The placement problem that the counts int[S, L, E] of consecutive steps pose; the others as for `planned`."""
    return Problem(
        forecast=counts.sum(axis=0, dtype=np.float64),
        windows=windows_apart(counts, window),
        topology=topology,
        groups=meta.groups,
        seed=seed,
        window_steps=float(min(window, len(counts))),
        top_k=meta.top_k,
        effort=Effort(proposals=proposals),
    )
