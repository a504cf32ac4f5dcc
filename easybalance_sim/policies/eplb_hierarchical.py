"""Greedy expert-parallel load balancing that keeps each expert group of the router inside one node."""

from __future__ import annotations

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem


def place(problem: Problem) -> Plan:
    """The hierarchical policy of DeepSeek's EPLB (github.com/deepseek-ai/EPLB) on the forecast: groups to nodes, then
    replicas within each node, so that a token's experts lie on few nodes.

    `NotApplicable` unless there are several nodes, equal in ranks and slots, that divide the groups, and the slots of a
    node hold its share of the experts without holding one twice on a rank.
    """
    _require_applicable(problem)
    topology = problem.topology
    return Plan(
        expert_of_slot=kernels.load().greedy_hierarchical(
            problem.forecast, problem.groups, topology.node_of_rank, topology.slots_per_rank, topology.speed
        ),
        slots_per_rank=topology.slots_per_rank,
        experts=problem.experts,
        policy="eplb_hierarchical",
    )


def _require_applicable(problem: Problem) -> None:
    topology, groups = problem.topology, problem.groups
    nodes, experts_per_node = topology.nodes, problem.experts // topology.nodes
    slots_of_node = np.bincount(topology.node_of_rank, weights=topology.slots_per_rank)
    if nodes == 1:
        raise NotApplicable("one node: eplb makes the same plan", plain=True)
    if groups == 1:
        raise NotApplicable("the router has no expert groups", plain=True)
    if groups % nodes:
        raise NotApplicable(f"{groups} expert groups do not divide over {nodes} nodes")
    if len(set(np.bincount(topology.node_of_rank))) > 1 or len(set(slots_of_node)) > 1:
        raise NotApplicable("nodes differ in ranks or slots")
    if slots_of_node[0] < experts_per_node:
        raise NotApplicable(f"{int(slots_of_node[0])} slots of a node cannot hold its {experts_per_node} experts")
    if topology.slots_per_rank.max() > experts_per_node:
        raise NotApplicable(
            f"a rank with {int(topology.slots_per_rank.max())} slots would hold an expert twice "
            f"({experts_per_node} experts per node)"
        )
