"""Which node each rank's experts should live on: a permutation of ranks, free in memory and in balance over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable
from easybalance_sim.policies._traffic import Flow, copies_of_ways

MOST_WAYS = 3000
"""Up to so many ways to deal the ranks to nodes, all are tried; beyond, pairs of ranks are exchanged."""

MOST_RANKS = 16
"""Every exchange of two ranks is costed for all layers at once: 3 s for 58 layers on 16 ranks, 31 s on 32, and memory
grows with the cube of the ranks."""


def relabelled(plan: Plan, flow: Flow, topology: Topology) -> Plan:
    """The plan with the ranks of every layer dealt to nodes so that least leaves a node.

    Exact for few ranks, else steepest descent over exchanges of two ranks. `NotApplicable` when ranks differ in slots
    or speed, because then they cannot be exchanged, and with more than `MOST_RANKS` ranks.
    """
    if plan.ranks > MOST_RANKS:
        raise NotApplicable(f"{plan.ranks} ranks, relabelling is for up to {MOST_RANKS}")
    if len(set(plan.slots_per_rank.tolist())) > 1 or len(set(topology.speed.tolist())) > 1:
        raise NotApplicable("ranks differ in slots or speed")
    every = _ways(topology.node_of_rank, _nodes_are_alike(flow, topology))
    node = _exact(plan, flow, every) if every is not None else _descent(plan, flow, topology.node_of_rank)
    # A rank of the plan goes to a rank of the node chosen for it, in the order of both.
    at_node = np.argsort(topology.node_of_rank, kind="stable")
    came_from = np.empty((plan.layers, plan.ranks), np.int64)
    came_from[:, at_node] = np.argsort(node, axis=1, kind="stable")
    slots = plan.expert_of_slot.reshape(plan.layers, plan.ranks, -1)
    moved = np.take_along_axis(slots, came_from[:, :, None], axis=1)
    return replace(plan, expert_of_slot=moved.reshape(plan.layers, -1))


def _exact(plan: Plan, flow: Flow, ways: IntArray) -> IntArray:
    copies = copies_of_ways(plan, flow, np.broadcast_to(ways, (plan.layers, *ways.shape)))
    best: IntArray = ways[copies.argmin(axis=1)]
    return best


def _descent(plan: Plan, flow: Flow, node_of_rank: IntArray) -> IntArray:
    """int64[L, R], from the ranks as they are; stops when no exchange helps any layer."""
    node = np.tile(node_of_rank, (plan.layers, 1))
    layer = np.arange(plan.layers)
    first, second = np.triu_indices(plan.ranks, 1)
    for _ in range(plan.ranks):
        ways = np.repeat(node[:, None], len(first) + 1, axis=1)
        pair = np.arange(len(first))
        ways[:, pair, first], ways[:, pair, second] = node[:, second], node[:, first]
        best = copies_of_ways(plan, flow, ways)
        best[:, -1] -= 1e-9
        chosen = best.argmin(axis=1)
        if (chosen == len(first)).all():
            break
        node = ways[layer, chosen]
    return node


def _nodes_are_alike(flow: Flow, topology: Topology) -> bool:
    """Whether two nodes may change places without a change of traffic."""
    sizes = np.bincount(topology.node_of_rank)
    return bool((sizes == sizes[0]).all() and (flow.source < 0).all() and np.ptp(flow.share, axis=2).max() < 1e-12)


def _ways(node_of_rank: IntArray, alike: bool) -> IntArray | None:
    """int64[C, R] every way to deal ranks to nodes of these sizes, None when there are too many.

    Of ways that differ in the names of nodes that are alike, one.
    """
    left = np.bincount(node_of_rank)
    found = []
    for way in _deals(left.tolist(), len(node_of_rank), int(left[0]) if alike else 0):
        found.append(way)
        if len(found) > MOST_WAYS:
            return None
    return np.array(found, np.int64)


def _deals(left: list[int], ranks: int, untouched: int) -> Iterator[list[int]]:
    """left: free places of each node; nodes with `untouched` of them are alike, so only the first is tried."""
    if ranks == 0:
        yield []
        return
    for node, room in enumerate(left):
        if room:
            rest = [n - (at == node) for at, n in enumerate(left)]
            for more in _deals(rest, ranks - 1, untouched):
                yield [node, *more]
        if room == untouched > 0:
            return
