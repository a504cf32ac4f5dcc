"""Copies over RDMA and NVLink, recomputed from random routing by their definitions.

Low latency: one message per assignment; a link carries the busier of what its rank sends and what it receives.
Normal: once per distinct remote node over RDMA, to the rank with the sender's local index, which forwards once per
distinct rank over NVLink.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, BoolArray, IntArray, frozen
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import links, subject
from easybalance_sim.trace.schema import TokenBatch
from tests.replay_cases import cost_of, random_batch, random_plan

TOKENS, LAYERS, TOP_K = 200, 2, 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Routed:
    """One step of random traffic on a plan without redundancy, so that every expert has one known rank."""

    topology: Topology
    plan: Plan
    batch: TokenBatch

    def rank_of(self, layer: int) -> IntArray:
        """int64[T, K] rank that computes each assignment."""
        ranks: IntArray = self.plan.rank_of_slot[self.plan.replica_slot[layer, self.batch.experts[:, layer]]]
        return ranks

    def counts(self, mode: str) -> dict[str, AnyArray]:
        """What the kernel counts in this step."""
        route, plan, ranks = links(self.topology, mode), self.plan, self.plan.ranks
        out: dict[str, AnyArray] = {"slot_tokens": np.zeros((1, LAYERS, plan.slots), np.int32)}
        out |= {name: np.zeros((1, LAYERS, ranks), np.int32) for name in ("distinct", "rdma", "nvlink")}
        out |= {"rank_pairs": np.zeros((ranks,) * 2, np.int64), "node_pairs": np.zeros((route.nodes,) * 2, np.int64)}
        ready = prepare("even", plan, route.node, 0)
        kernels.load().dispatch(
            self.batch.experts, frozen([0, TOKENS], np.int64), frozen([0], np.int64), self.batch.source_rank,
            frozen(np.zeros(TOKENS), np.int32), plan.replica_start, plan.replica_slot, ready.table, plan.rank_of_slot,
            route.node, route.entry, ready.code, 0, route.per_node, 2, *out.values(),
        )  # fmt: skip
        return out


def routed(ranks: int, ranks_per_node: int) -> Routed:
    experts = 3 * ranks
    topology = uniform(ranks, ranks_per_node, 3)
    return Routed(
        topology=topology,
        plan=random_plan(5, LAYERS, experts, topology.slots_per_rank),
        batch=random_batch(ranks, tokens=TOKENS, steps=1, layers=LAYERS, experts=experts, top_k=TOP_K, ranks=ranks),
    )


def busier(copies: AnyArray) -> AnyArray:
    """Larger of what a rank sends (row) and receives (column)."""
    more: AnyArray = np.maximum(copies.sum(axis=1), copies.sum(axis=0))
    return more


@pytest.mark.parametrize(("ranks", "ranks_per_node"), [(8, 8), (8, 4), (12, 3), (6, 1), (5, 2), (1, 1)])
def test_low_latency(ranks: int, ranks_per_node: int) -> None:
    case = routed(ranks, ranks_per_node)
    found, node = case.counts("low_latency"), case.topology.node_of_rank
    near = node[:, None] == node[None, :]
    total = np.zeros((ranks, ranks), np.int64)
    for layer in range(LAYERS):
        copies = np.zeros((ranks, ranks), np.int64)
        np.add.at(copies, (case.batch.source_rank[:, None], case.rank_of(layer)), 1)
        total += copies
        away = copies * (1 - np.eye(ranks, dtype=np.int64))
        assert found["rdma"][0, layer].tolist() == busier(away * ~near).tolist()
        assert found["nvlink"][0, layer].tolist() == busier(away * near).tolist()
    assert found["rank_pairs"].tolist() == total.tolist()
    member = node[:, None] == np.arange(case.topology.nodes)
    assert found["node_pairs"].tolist() == (member.T @ total @ member).tolist()


@pytest.mark.parametrize(("ranks", "ranks_per_node"), [(8, 8), (8, 4), (12, 3), (6, 1), (8, 2)])
def test_normal(ranks: int, ranks_per_node: int) -> None:
    case, size, nodes = routed(ranks, ranks_per_node), ranks_per_node, ranks // ranks_per_node
    found = case.counts("normal")
    total_ranks, total_nodes = np.zeros((ranks, ranks), np.int64), np.zeros((ranks, nodes), np.int64)
    for layer in range(LAYERS):
        hit: BoolArray = (case.rank_of(layer)[:, :, None] == np.arange(ranks)).any(axis=1)
        sender = (case.batch.source_rank[:, None] == np.arange(ranks)).astype(np.int64)
        to_rank, to_node = sender.T @ hit, sender.T @ hit.reshape(-1, nodes, size).any(axis=2)
        total_ranks += to_rank
        total_nodes += to_node
        far = to_node * (np.arange(ranks)[:, None] // size != np.arange(nodes))
        received = far.reshape(nodes, size, nodes).sum(axis=0).T.ravel()
        assert found["rdma"][0, layer].tolist() == np.maximum(far.sum(axis=1), received).tolist()
        # [index of the forwarding rank, node, index of the receiving rank], summed over the senders' nodes.
        forward = to_rank.reshape(nodes, size, nodes, size).sum(axis=0)
        nvlink = [busier(forward[:, n] * (1 - np.eye(size, dtype=np.int64))) for n in range(nodes)]
        assert found["nvlink"][0, layer].tolist() == np.concatenate(nvlink).tolist()
        assert found["distinct"][0, layer].tolist() == hit.sum(axis=0).tolist()
    assert found["rank_pairs"].tolist() == total_ranks.tolist()
    assert found["node_pairs"].tolist() == total_nodes.reshape(nodes, size, nodes).sum(axis=1).tolist()


def test_expected_copies_of_uniform_routing_on_four_nodes_of_eight() -> None:
    """Top-8 of 256 on 32 ranks: 2.71 remote nodes and 6.36 forwarded ranks per token (1 - C(192, 8)/C(256, 8), …)."""
    tokens, ranks = 4096, 32
    rng = np.random.default_rng(0)
    ids = np.argpartition(rng.random((tokens, 1, 256)), 8, axis=2)[:, :, :8]
    topology, route = uniform(ranks, 8, 8), links(uniform(ranks, 8, 8), "normal")
    plan = random_plan(0, 1, 256, topology.slots_per_rank)
    found = [np.zeros((1, 1, n), np.int32) for n in (256, ranks, ranks, ranks)]
    kernels.load().dispatch(
        frozen(ids, np.uint8), frozen([0, tokens], np.int64), frozen([0], np.int64),
        frozen(np.arange(tokens) % ranks, np.int16), frozen(np.zeros(tokens), np.int32), plan.replica_start,
        plan.replica_slot, prepare("even", plan, route.node, 0).table, plan.rank_of_slot, route.node, route.entry, 0, 0,
        True, 2, *found, np.zeros((ranks, ranks), np.int64), np.zeros((4, 4), np.int64),
    )  # fmt: skip
    # The busier direction of a rank is a little above its mean, which is what the formula gives.
    assert found[2].sum() / tokens == pytest.approx(2.71, rel=0.03)
    assert found[3].sum() / tokens == pytest.approx(6.36, rel=0.03)


def test_entry_is_the_rank_with_the_same_local_index() -> None:
    route = links(uniform(8, 4, 1), "normal")
    assert route.entry.tolist() == [[r % 4, 4 + r % 4] for r in range(8)]
    assert route.per_node and not links(uniform(8, 4, 1), "low_latency").per_node


def test_entry_wraps_in_a_smaller_node_and_follows_scattered_nodes() -> None:
    assert links(uniform(5, 3, 1), "normal").entry.tolist() == [[0, 3], [1, 4], [2, 3], [0, 3], [1, 4]]
    scattered = Topology(node_of_rank=np.array([1, 0, 1, 0]), slots_per_rank=np.ones(4, np.int64), speed=np.ones(4))
    assert links(scattered, "normal").entry.tolist() == [[1, 0], [1, 0], [3, 2], [3, 2]]


def test_a_plan_for_other_ranks_is_refused() -> None:
    topology = uniform(4, 4, 2)
    plan = random_plan(0, 1, 4, [2, 2, 2])
    with pytest.raises(UsageError, match="the plan is for 3 ranks, the cluster has 4"):
        subject(plan, topology, "even", cost_of(plan, uniform(3, 3, 2)), 0)
