"""Byte totals per rank and window: slow resources that integrate over layers, where staggering counts.

Memory: weights of the slots that are active in a step, and activations that go in and out. Network: assignments that
reach a rank from another node, one message each and straight to that rank (low-latency all-to-all); combine takes
the same way back. What a rank sends depends on no label inside a node.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads, sources


def memory_bytes(counts: AnyArray, plan: Plan, expert_bytes: float, token_bytes: float) -> FloatArray:
    """float64[S, L, R] bytes that ranks read and write for counts int[S, L, E] of steps.

    Replicas are served in turn: of n assignments and c replicas min(n, c) slots are active. token_bytes: of one
    activation, which an assignment reads and writes once.
    """
    active = rank_loads(np.minimum(counts, plan.replicas), plan)
    return active * expert_bytes + rank_loads(counts, plan) * (2 * token_bytes)


def arrivals(
    steps: RecordedSteps,
    plan: Plan,
    node_of_rank: IntArray,
    window: int,
    advance: Callable[[int], None] = lambda layers: None,
) -> FloatArray:
    """float64[W, N, L, R] assignments that ranks of the plan get from tokens of each node, windows as of
    `windows_apart`; replicas share evenly. advance: called once per layer."""
    size = max(1, min(window, len(steps)))
    first = len(steps) % size
    kept = steps.between(first, len(steps))
    windows, nodes = len(kept) // size, int(node_of_rank.max()) + 1
    row = kept.step_of_token // size * nodes + node_of_rank[sources(kept, plan.ranks)]
    out = np.zeros((windows, nodes, plan.layers, plan.ranks))
    for layer in range(plan.layers):
        key = (row[:, None] * plan.experts + kept.experts[:, layer]).ravel()
        counts = np.bincount(key, minlength=windows * nodes * plan.experts).reshape(windows * nodes, 1, plan.experts)
        out[:, :, layer] = rank_loads(counts, _layer(plan, layer)).reshape(windows, nodes, plan.ranks)
        advance(1)
    return out


def from_other_nodes(arriving: FloatArray, node_of_rank: IntArray) -> FloatArray:
    """float64[W, R] of assignments float64[W, N, L, R] those that cross the network, all layers together."""
    total = arriving.sum(axis=2)
    own = total[:, node_of_rank, np.arange(len(node_of_rank))]
    crossing: FloatArray = total.sum(axis=1) - own
    return crossing


def _layer(plan: Plan, layer: int) -> Plan:
    return Plan(
        expert_of_slot=plan.expert_of_slot[layer : layer + 1],
        slots_per_rank=plan.slots_per_rank,
        experts=plan.experts,
        policy=plan.policy,
    )
