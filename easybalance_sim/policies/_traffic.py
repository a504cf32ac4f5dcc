"""What leaves a node under nearest-replica dispatch: copies per token, and the rank loads that this dispatch makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, FloatArray, Int16Array, IntArray, frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import NotApplicable, Problem

PRIOR_TOKENS = 16.0
"""Sampled tokens of an expert that its share per source node must outweigh before it is believed."""
SPANS = 8
"""Of windows that follow each other: each has a tail of its own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Flow:
    """Where tokens come from and what they cost between nodes (see `kernels.reference_traffic`).

    share: float64[L, E, N] of an expert's tokens that come from each node · message: float64[L, E, N] messages per
    token to an expert that the node lacks, zeros in normal mode · ids: [L, T, K], source: int16[T] sampled tokens,
    none in low-latency mode · weight: float64[N] share of the ranks.
    """

    share: FloatArray
    message: FloatArray
    ids: AnyArray
    source: Int16Array
    weight: FloatArray


def flow_of(problem: Problem) -> Flow:
    """Normal mode counts one copy per distinct remote node of a sampled token, low latency one message per assignment.

    `NotApplicable` on one node, and in normal mode without a sample of tokens.
    """
    topology, sample = problem.topology, problem.sample
    if topology.nodes == 1:
        raise NotApplicable("one node: nothing crosses between nodes", plain=True)
    if sample is None:
        raise NotApplicable("no tokens: counts do not say which experts a token uses together")
    weight = np.bincount(topology.node_of_rank) / topology.ranks
    ids, source = frozen(sample.experts.transpose(1, 0, 2)), sample.source_node
    share = _shares(ids, source, problem.experts, weight)
    message = np.zeros_like(share)
    if problem.per_assignment:
        chosen = problem.forecast / np.maximum(problem.forecast.sum(axis=1, keepdims=True), 1e-300)
        message = ids.shape[2] * chosen[:, :, None] * share
        ids, source = ids[:, :0], source[:0]
    return Flow(
        share=frozen(share), message=frozen(message), ids=frozen(ids), source=frozen(source), weight=frozen(weight)
    )


def copies_per_token(plan: Plan, flow: Flow, node_of_rank: IntArray) -> float:
    """Copies that leave a node per token and layer, mean over layers."""
    node = np.broadcast_to(node_of_rank, (plan.layers, 1, plan.ranks))
    return float(copies_of_ways(plan, flow, node).mean())


def copies_of_ways(plan: Plan, flow: Flow, node: IntArray) -> FloatArray:
    """float64[L, C] the same for C ways to put the ranks of each layer on nodes; node: int64[L, C, R]."""
    has = np.zeros((plan.layers, plan.ranks, plan.experts), np.bool_)
    has[np.arange(plan.layers)[:, None], plan.rank_of_slot, plan.expert_of_slot] = True
    copies: FloatArray = kernels.load().copies_per_token(
        frozen(has), frozen(node, np.int64), flow.message, flow.ids, flow.source, flow.weight
    )
    return copies


def slot_share(plan: Plan, flow: Flow, node_of_rank: IntArray) -> FloatArray:
    """float64[L, P] share of its expert's tokens that each slot gets: a node with a replica serves itself, the others
    choose among all replicas."""
    node, layer = node_of_rank[plan.rank_of_slot], np.arange(plan.layers)[:, None]
    copies = np.zeros(flow.share.shape, np.int64)
    np.add.at(copies, (layer, plan.expert_of_slot, node), 1)
    away = np.where(copies == 0, flow.share, 0).sum(axis=2) / copies.sum(axis=2)
    near = flow.share / np.maximum(copies, 1)
    share: FloatArray = near[layer, plan.expert_of_slot, node] + away[layer, plan.expert_of_slot]
    return share


def window_imbalance(plan: Plan, windows: IntArray, flow: Flow, topology: Topology) -> FloatArray:
    """float64[W, L] the busiest rank's load / speed over total load / total speed; windows: int64[W, L, E]."""
    share, layer = slot_share(plan, flow, topology.node_of_rank), np.arange(plan.layers)[:, None]
    slots = windows[:, layer, plan.expert_of_slot] * share
    loads = np.add.reduceat(slots, plan.slot_start[:-1], axis=2)
    mean = loads.sum(axis=2) / topology.speed.sum()
    ratio: FloatArray = np.divide((loads / topology.speed).max(axis=2), mean, out=np.ones_like(mean), where=mean > 0)
    return ratio


def tails(plan: Plan, windows: IntArray, flow: Flow, topology: Topology) -> FloatArray:
    """float64[L] mean over spans of the windows of the P99 of the imbalance in a span.

    The P99 of all windows is that of their worst topic, which other traffic need not have.
    """
    ratio = window_imbalance(plan, windows, flow, topology)
    spans = np.array_split(ratio, min(SPANS, len(ratio)))
    mean: FloatArray = np.mean([np.quantile(span, 0.99, axis=0) for span in spans], axis=0)
    return mean


def _shares(ids: AnyArray, source: Int16Array, experts: int, weight: FloatArray) -> FloatArray:
    """float64[L, E, N], from tokens of known source and, where these are few, the share of the ranks."""
    seen = np.zeros((len(ids), experts, len(weight)))
    known = source >= 0
    chosen = ids[:, known]
    layer = np.arange(len(ids))[:, None, None]
    np.add.at(seen, (layer, chosen, np.broadcast_to(source[known][None, :, None], chosen.shape)), 1.0)
    shares: FloatArray = (seen + PRIOR_TOKENS * weight) / (seen.sum(axis=2, keepdims=True) + PRIOR_TOKENS)
    return shares
