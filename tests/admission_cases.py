"""Requests of known topics, and how they are judged, for tests of admission."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.simulate.admission.judged import Course
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import DECODE, TraceMeta, as_ids

SHAPE = ModelShape(name="toy", layers=(0, 1), experts=16, top_k=2, hidden=64, intermediate=32)


def steps_of(
    rows: Sequence[tuple[int, int]],
    experts: AnyArray,
    *,
    n_experts: int,
    workload: Sequence[int] | AnyArray | None = None,
    position: Sequence[int] | AnyArray | None = None,
) -> RecordedSteps:
    """Tokens (step, request), in order of their steps, with ids [T, L, K]; every workload has a name."""
    step, request = np.array(rows, np.int64).T
    kinds = np.zeros(len(rows), np.int16) if workload is None else np.asarray(workload)
    ids, start = np.unique(step, return_index=True)
    layers, top_k = experts.shape[1:]
    return RecordedSteps(
        meta=TraceMeta(kind="tokens", layers=tuple(range(layers)), experts=n_experts, top_k=top_k),
        step=frozen(ids, np.int64),
        start=frozen(np.append(start, len(rows)), np.int64),
        experts=frozen(as_ids(experts, n_experts)),
        request=frozen(request, np.int64),
        position=frozen(np.zeros(len(rows)) if position is None else position, np.int32),
        phase=frozen(np.full(len(rows), DECODE), np.uint8),
        workload=frozen(kinds, np.int16),
        source_rank=frozen(np.full(len(rows), -1), np.int16),
        workloads=tuple(f"kind {number}" for number in range(int(kinds.max()) + 1)),
    )


def life(first: int, length: int, request: int, chunk: int = 1) -> list[tuple[int, int]]:
    """(step, request) of a request that runs `chunk` tokens in its first step and one in each of the others."""
    return [(first, request)] * chunk + [(first + later, request) for later in range(1, length)]


def crowd(seed: int, requests: int = 120, topics: int = 4, experts: int = 16, layers: int = 2) -> RecordedSteps:
    """Requests that come about one per step; a topic uses experts of its block six times as often."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, topics, requests)
    came = np.sort(rng.integers(0, requests, requests))
    rows = [
        row
        for request in range(requests)
        for row in life(int(came[request]), int(rng.integers(4, 12)), request, int(rng.integers(2, 9)))
    ]
    rows.sort(key=lambda row: row[0])
    of = topic[np.array(rows)[:, 1]]
    return steps_of(rows, _chosen(rng, of, layers, experts, experts // topics), n_experts=experts, workload=of)


def _chosen(rng: np.random.Generator, topic: IntArray, layers: int, experts: int, block: int) -> AnyArray:
    """[T, L, 2] distinct experts, each layer with its own numbering of the blocks."""
    ids = np.empty((len(topic), layers, 2), np.int64)
    for layer in range(layers):
        names = np.random.default_rng(layer).permutation(experts)
        weight = np.where(np.arange(experts) // block == topic[:, None], 6.0, 1.0)
        keys = rng.standard_exponential(weight.shape) / weight
        ids[:, layer] = names[np.argsort(keys, axis=1)[:, :2]]
    return ids


def course(topology: Topology | None = None, window: int = 4) -> Course:
    """Judged on 4 ranks, 2 per node, 6 slots each, unless said."""
    cluster = uniform(4, 2, 6) if topology is None else topology
    profile = load_profile("h200")
    return Course(
        topology=cluster,
        cost=lambda plan, mode: layer_cost(profile, SHAPE, cluster, plan.slots_per_rank, mode, "decode"),
        window=window,
    )
