"""Routed requests with topics, and plans that serve them, for tests of the step model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.serving.replayed import Replayed, replayed
from easybalance_sim.simulate.serving.routed import Routed, routed_requests
from easybalance_sim.simulate.serving.step_model import AttentionSeconds, OutsideSeconds, StepModel
from easybalance_sim.simulate.serving.steps import step_model
from easybalance_sim.trace.schema import DECODE, PREFILL, TokenBatch
from tests.replay_cases import cost_of, random_plan

WORKLOADS = ("red", "blue")


def routed_batch(
    seed: int, *, requests: int = 40, layers: int = 3, experts: int = 16, top_k: int = 2, longest: int = 40
) -> TokenBatch:
    """Requests of two workloads, each with favourite experts of its own; a prompt and an answer each, shuffled rows of
    one step per token."""
    rng = np.random.default_rng([seed, 9])
    parts = []
    for request in range(requests):
        topic = rng.gamma(0.5, size=(layers, experts)) + 0.02 * (1 + (request % 2) * np.arange(experts))
        length = rng.integers(4, longest, 2)
        for phase in (PREFILL, DECODE):
            clocks = rng.standard_exponential((length[phase], layers, experts)) / topic
            ids = np.argsort(clocks, axis=2)[:, :, :top_k]
            parts.append((request, phase, np.arange(length[phase]) + phase * length[0], ids))
    columns = [np.concatenate([np.full(len(p[3]), p[at]) for p in parts]) for at in (0, 1)]
    position, ids = (np.concatenate([p[at] for p in parts]) for at in (2, 3))
    order = rng.permutation(len(ids))
    return token_batch(columns[0][order], columns[1][order], position[order], ids[order])


def token_batch(request: AnyArray, phase: AnyArray, position: AnyArray, ids: AnyArray) -> TokenBatch:
    """Tokens of one step each; workload = request mod 2."""
    tokens = len(ids)
    return TokenBatch(
        step=frozen(np.arange(tokens), np.int32),
        request=frozen(request, np.int64),
        position=frozen(position, np.int32),
        phase=frozen(phase, np.uint8),
        source_rank=frozen(np.full(tokens, -1), np.int16),
        workload=frozen(np.asarray(request) % 2, np.int16),
        experts=frozen(ids, np.uint8),
    )


def routed_of(seed: int, *, experts: int = 16, **options: int) -> Routed:
    """The requests of `routed_batch`."""
    return routed_requests([routed_batch(seed, experts=experts, **options)], WORKLOADS, experts)


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """A plan for routed requests, with its cost."""

    routed: Routed
    plan: Plan
    topology: Topology
    cost: LayerCost
    rule: str
    data_ranks: int

    def replay(self) -> Replayed:
        """Ready for replay."""
        return replayed(self.plan, self.topology, self.cost, data_ranks=self.data_ranks, rule=self.rule)

    def model(self, *, run_tokens: int = 0, seed: int = 0) -> StepModel:
        """Its step model."""
        return step_model(
            self.routed, self.plan, self.topology, self.cost, attention=AttentionSeconds(), outside=OutsideSeconds(),
            data_ranks=self.data_ranks, rule=self.rule, run_tokens=run_tokens, seed=seed,
        )  # fmt: skip


def served(
    seed: int, *, ranks: int = 4, slots: int = 5, per_node: int = 8, mode: str = "low_latency", rule: str = "even",
    data_ranks: int = 0, experts: int = 16, routed: Routed | None = None,
) -> Served:  # fmt: skip
    """A random plan on equal ranks of an H200 cluster."""
    requests = routed_of(seed, experts=experts) if routed is None else routed
    plan = random_plan(seed, requests.experts.shape[1], experts, [slots] * ranks)
    topology = uniform(ranks, per_node, slots)
    return Served(
        routed=requests, plan=plan, topology=topology, cost=cost_of(plan, topology, mode=mode, top_k=2), rule=rule,
        data_ranks=data_ranks or ranks,
    )  # fmt: skip
