"""What admission and placement did together on steps of recorded requests, replayed token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, Int16Array, IntArray, frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import dispatched, links
from easybalance_sim.simulate.admission.requests import batch_of
from easybalance_sim.simulate.steps.balance import Balance, balance
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import TokenBatch

MODES = ("normal", "low_latency")

CostOf = Callable[[Plan, str], LayerCost]
"""The cost model of a plan under an all-to-all mode."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """How every judgement is made. cost: see `CostOf` · replicas: dispatch rule by which a replica is chosen · window:
    steps of a window of rank loads."""

    topology: Topology
    cost: CostOf
    replicas: str = "sglang-static"
    window: int = 12


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """What left its node under one all-to-all mode. copies_per_token: of one layer, dispatched · rank_copies_per_token:
    the same that left their rank · bytes_per_step: that left a node, over all layers, dispatch and combine · layer_us:
    time of a layer, median and 99th percentile over steps and layers · step_us: of all layers of a step, median."""

    copies_per_token: float
    rank_copies_per_token: float
    bytes_per_step: float
    layer_us_p50: float
    layer_us_p99: float
    step_us_p50: float


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A plan with the ranks at which its tokens entered. balance: of rank loads · crossing: by all-to-all mode, in
    `normal` a token is copied once per distinct remote node, in `low_latency` once per assignment · least_remote: see
    `least_remote`."""

    balance: Balance
    crossing: dict[str, Crossing]
    least_remote: float

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return asdict(self)


def judge(
    course: Course,
    plan: Plan,
    steps: RecordedSteps,
    source: Int16Array,
    first: int = 0,
    end: int | None = None,
    modes: Sequence[str] = MODES,
) -> Judged:
    """Replay the steps in places first..end-1 (None = to the last); source: int16[T] rank at which tokens enter."""
    rows = slice(int(steps.start[first]), int(steps.start[len(steps) if end is None else end]))
    batch = batch_of(steps, source).select(rows)
    node = frozen(course.topology.node_of_rank, np.int32)
    dispatch = prepare(course.replicas, plan, node, 0, steps.meta.layers)
    crossing = {}
    for mode in modes:
        cost, loads, seconds = course.cost(plan, mode), [], []
        copies = np.zeros(2, np.int64)
        for _, sent in dispatched([batch], plan, dispatch, links(course.topology, mode), course.topology.ranks):
            loads.append(sent.rank_rows)
            seconds.append(cost.seconds(sent.slot_tokens, sent.distinct, sent.rdma, sent.nvlink).ranked)
            copies += [int(pairs.sum() - np.trace(pairs)) for pairs in (sent.node_pairs, sent.rank_pairs)]
        crossing[mode] = _crossing(copies, batch.tokens, np.concatenate(seconds), cost.copy_bytes)
    # The same assignments reach the same ranks in every mode.
    evenness = balance(np.concatenate(loads).astype(np.float64), course.window)
    return Judged(
        balance=evenness, crossing=crossing, least_remote=least_remote(batch, steps.meta.experts, course.topology)
    )


def least_remote(batch: TokenBatch, experts: int, topology: Topology) -> float:
    """Assignments per token and layer that no placement keeps from leaving their node, with these slots and sources.

    A node can serve no more than the experts in its slots: at best, in hindsight, those that its tokens use most.
    """
    node, kept = topology.node_of_rank[batch.source_rank], 0
    slots = np.bincount(topology.node_of_rank, weights=topology.slots_per_rank).astype(np.int64)
    layers, top_k = batch.experts.shape[1:]
    for layer in range(layers):
        flat = (node[:, None] * experts + batch.experts[:, layer]).ravel()
        used = np.bincount(flat, minlength=topology.nodes * experts).reshape(topology.nodes, experts)
        kept += sum(int(np.sort(row)[::-1][:most].sum()) for row, most in zip(used, slots, strict=True))
    return float(top_k - kept / max(batch.tokens * layers, 1))


def _crossing(copies: IntArray, tokens: int, seconds: FloatArray, copy_bytes: float) -> Crossing:
    """copies: int64[2] that left nodes, ranks · seconds: float64[W, L]."""
    per_token = copies / max(tokens * seconds.shape[1], 1)
    p50, p99 = np.percentile(seconds, (50, 99)) * 1e6
    return Crossing(
        copies_per_token=float(per_token[0]),
        rank_copies_per_token=float(per_token[1]),
        bytes_per_step=float(copies[0]) * copy_bytes / len(seconds),
        layer_us_p50=float(p50),
        layer_us_p99=float(p99),
        step_us_p50=float(np.median(seconds.sum(axis=1)) * 1e6),
    )
