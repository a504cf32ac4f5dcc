"""Recorded steps that staggering tests start from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import TraceMeta


def steps_of(
    experts: AnyArray, lengths: Sequence[int], n_experts: int, *, source: AnyArray | None = None, ranks: int = 0
) -> RecordedSteps:
    """Steps of `lengths` tokens with ids [T, L, K]; every token is a request of its own."""
    ids = np.asarray(experts)
    tokens, layers, top_k = ids.shape
    meta = TraceMeta(kind="tokens", layers=tuple(range(layers)), experts=n_experts, top_k=top_k, ranks=ranks)
    return RecordedSteps(
        meta=meta,
        step=frozen(np.arange(len(lengths)), np.int64),
        start=frozen(np.concatenate([[0], np.cumsum(lengths)]), np.int64),
        experts=frozen(ids, np.uint8),
        request=frozen(np.arange(tokens), np.int64),
        position=frozen(np.zeros(tokens), np.int32),
        phase=frozen(np.zeros(tokens), np.uint8),
        workload=frozen(np.zeros(tokens), np.int16),
        source_rank=frozen(np.full(tokens, -1) if source is None else source, np.int16),
        workloads=("",),
    )


def chance_steps(seed: int, *, steps: int = 24, layers: int = 3, experts: int = 8, tokens: int = 6) -> RecordedSteps:
    """Steps of one-expert tokens from two topics that take turns: each has hot experts of its own in every layer."""
    source = np.random.default_rng(seed)
    topics = source.dirichlet(np.full(experts, 0.5), size=(2, layers))
    ids = np.empty((steps * tokens, layers, 1), np.int64)
    for step in range(steps):
        for layer in range(layers):
            drawn = source.choice(experts, tokens, p=topics[step // 4 % 2, layer])
            ids[step * tokens : (step + 1) * tokens, layer, 0] = drawn
    return steps_of(ids, [tokens] * steps, experts)


def chance_plan(seed: int, *, layers: int = 3, experts: int = 8, slots: Sequence[int] = (3, 3, 2, 2)) -> Plan:
    """Every expert somewhere, what is left over to experts by chance."""
    source, total = np.random.default_rng([seed, 7]), sum(slots)
    rows = [
        source.permutation(np.concatenate([np.arange(experts), source.choice(experts, total - experts)]))
        for _ in range(layers)
    ]
    return Plan(expert_of_slot=np.stack(rows), slots_per_rank=np.array(slots), experts=experts, policy="mine")
