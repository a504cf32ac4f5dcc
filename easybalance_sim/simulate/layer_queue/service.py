"""Seconds that a micro-batch takes of every rank: attention, dispatch, experts, combine of a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.expert import ExpertModel
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.plan.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Seconds:
    """Of L layers for B micro-batches. attention, expert: float64[B, L, R] of each rank · dispatch, combine:
    float64[B, L, R] until each rank has what it sends or receives."""

    attention: FloatArray
    dispatch: FloatArray
    expert: FloatArray
    combine: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class ServiceTimes:
    """How long the parts take.

    expert(int32[B, L, P] assignments of slots, int32[B, L, R] distinct tokens of ranks) → float64[B, L, R] ·
    attention(float64[B, R] tokens of requests at home on a rank) → float64[B, R] in each layer ·
    travel(float64[B, L, R] assignments of ranks, float64[B] tokens) → two float64[B, L, R], there and back.
    """

    expert: Callable[[Int32Array, Int32Array], FloatArray]
    attention: Callable[[FloatArray], FloatArray]
    travel: Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]

    def of(self, slot_tokens: Int32Array, home: FloatArray, plan: Plan, top_k: int) -> Seconds:
        """slot_tokens: int32[B, L, P] · home: float64[B, R] tokens of requests at home on each rank."""
        loads = np.add.reduceat(slot_tokens, plan.slot_start[:-1], axis=2).astype(np.float64)
        tokens = home.sum(axis=1)
        there, back = self.travel(loads, tokens)
        return Seconds(
            attention=np.repeat(self.attention(home)[:, None], plan.layers, axis=1),
            dispatch=there,
            expert=self.expert(slot_tokens, frozen(np.rint(distinct(loads, tokens, top_k)), np.int32)),
            combine=back,
        )


def distinct(loads: FloatArray, tokens: FloatArray, top_k: int) -> FloatArray:
    """float64[B, L, …] distinct tokens behind `loads` assignments, a token's K choices being independent.

    T·(1 - (1 - P / (T·K))^K) with P of T·K assignments; at most P and T. tokens: float64[B].
    """
    most = np.maximum(tokens, 1e-9).reshape(-1, *(1,) * (loads.ndim - 1))
    share = np.clip(loads / (most * top_k), 0.0, 1.0)
    found: FloatArray = np.minimum(most * (1.0 - (1.0 - share) ** top_k), loads)
    return found


def by_cost(
    cost: LayerCost, plan: Plan, topology: Topology, top_k: int, attention: Callable[[FloatArray], FloatArray]
) -> ServiceTimes:
    """Times of the cost model, rank by rank."""

    def expert(slot_tokens: Int32Array, distinct_tokens: Int32Array) -> FloatArray:
        return rank_seconds(cost.expert, slot_tokens, distinct_tokens, plan) / topology.speed

    def travel(loads: FloatArray, tokens: FloatArray) -> tuple[FloatArray, FloatArray]:
        rdma, nvlink = copies(loads, tokens, top_k, topology)
        return tuple(_rank_by_rank(part.seconds, rdma, nvlink) for part in (cost.dispatch, cost.combine))  # type: ignore[return-value]

    return ServiceTimes(expert=expert, attention=attention, travel=travel)


def rank_seconds(expert: ExpertModel, slot_tokens: Int32Array, distinct_tokens: Int32Array, plan: Plan) -> FloatArray:
    """float64[B, L, R] seconds of every rank at nominal speed: each is given to the model as a layer of its own.

    slot_tokens: int32[B, L, P] · distinct_tokens: int32[B, L, R].
    """
    batches, layers, _ = slot_tokens.shape
    most = int(plan.slots_per_rank.max())
    alone = np.zeros((batches, layers, plan.ranks, most), np.int32)
    alone[:, :, np.arange(most) < plan.slots_per_rank[:, None]] = slot_tokens
    seconds, _ = expert.seconds(
        frozen(alone.reshape(batches, layers * plan.ranks, most)),
        frozen(distinct_tokens.reshape(batches, layers * plan.ranks, 1), np.int32),
        frozen([0, most], np.int32),
        frozen(np.ones(1)),
    )
    return seconds.reshape(batches, layers, plan.ranks)


def copies(loads: FloatArray, tokens: FloatArray, top_k: int, topology: Topology) -> tuple[Int32Array, Int32Array]:
    """int32[B, L, R] copies over RDMA and NVLink in the busier direction of each rank, choices being independent.

    A token is sent once to every distinct domain, there once to every distinct rank. Its own rank and domain need no
    link: they are taken to be a 1/R and 1/N of what arrives.
    """
    sent = distinct(loads, tokens, top_k)
    nvlink = np.maximum(sent, sent.mean(axis=2, keepdims=True)) * (1.0 - 1.0 / topology.ranks)
    rdma = np.zeros_like(sent)
    for node in range(topology.nodes if topology.nodes > 1 else 0):
        members = topology.node_of_rank == node
        arriving = distinct(loads[:, :, members].sum(axis=2), tokens, top_k) * (1.0 - 1.0 / topology.nodes)
        rdma[:, :, members] = (arriving / members.sum())[:, :, None]
    return frozen(np.rint(rdma), np.int32), frozen(np.rint(nvlink), np.int32)


def _rank_by_rank(seconds: Callable[[Int32Array, Int32Array], FloatArray], *sent: AnyArray) -> FloatArray:
    batches, layers, ranks = sent[0].shape
    return seconds(*(frozen(each.reshape(batches, layers * ranks, 1)) for each in sent)).reshape(batches, layers, ranks)
