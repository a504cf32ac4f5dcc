"""Traffic, plans and costs that replay tests start from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, frozen, sealed
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.layer import LayerCost, layer_cost
from easybalance_sim.load.counting import Windowing
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import RULES
from easybalance_sim.replay.engine import links, replay, subject
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.trace.schema import TokenBatch

ALL_RULES = tuple(RULES)


def batch_of(
    step: Sequence[int] | AnyArray,
    source: Sequence[int] | AnyArray,
    experts: Any,
    *,
    request: Sequence[int] | AnyArray | None = None,
    time_s: AnyArray | None = None,
) -> TokenBatch:
    """Tokens with ids [T, L, K] (or [T, K] for one layer); requests are numbered by row unless given."""
    ids = np.asarray(experts)
    ids = ids[:, None, :] if ids.ndim == 2 else ids
    tokens = len(ids)
    return TokenBatch(
        step=frozen(step, np.int32),
        request=frozen(np.arange(tokens) if request is None else request, np.int64),
        position=frozen(np.zeros(tokens), np.int32),
        phase=frozen(np.ones(tokens), np.uint8),
        source_rank=frozen(source, np.int16),
        workload=frozen(np.zeros(tokens), np.int16),
        experts=frozen(ids, np.uint8 if ids.max() < 256 else np.uint16),
        time_s=None if time_s is None else frozen(time_s, np.float64),
    )


def random_ids(seed: int, tokens: int, layers: int, experts: int, top_k: int) -> AnyArray:
    """[T, L, K] distinct experts per token, the low ids hotter than the high ones."""
    rng = np.random.default_rng(seed)
    clocks = rng.standard_exponential((tokens, layers, experts)) * np.arange(1, experts + 1)
    chosen: AnyArray = np.argsort(clocks, axis=2)[:, :, :top_k]
    return chosen


def random_batch(
    seed: int, *, tokens: int, steps: int, layers: int, experts: int, top_k: int, ranks: int
) -> TokenBatch:
    """Steps of random sizes, sources at random."""
    rng = np.random.default_rng([seed, 1])
    return batch_of(
        np.sort(rng.integers(0, steps, tokens)),
        rng.integers(0, ranks, tokens),
        random_ids(seed, tokens, layers, experts, top_k),
    )


def random_plan(seed: int, layers: int, experts: int, slots_per_rank: Sequence[int] | AnyArray) -> Plan:
    """Every expert once, spare slots to experts at random, all shuffled."""
    rng = np.random.default_rng([seed, 2])
    spare = int(np.sum(slots_per_rank)) - experts
    rows = [
        rng.permutation(np.concatenate([np.arange(experts), rng.integers(0, experts, spare)])) for _ in range(layers)
    ]
    return Plan(
        expert_of_slot=np.stack(rows), slots_per_rank=np.asarray(slots_per_rank), experts=experts, policy="random"
    )


def small_shape(layers: int, experts: int, top_k: int) -> ModelShape:
    """A model of DeepSeek-V3's width with as many layers and experts as a test has."""
    return ModelShape(
        name="small", layers=tuple(range(layers)), experts=experts, top_k=top_k, hidden=7168, intermediate=2048
    )


def cost_of(plan: Plan, topology: Topology, *, mode: str = "low_latency", top_k: int = 1) -> LayerCost:
    """Seconds on an H200."""
    shape = small_shape(plan.layers, plan.experts, top_k)
    return layer_cost(load_profile("h200"), shape, topology, plan.slots_per_rank, mode, "decode")


def replayed(
    batches: TokenBatch | Sequence[TokenBatch],
    plan: Plan,
    *,
    ranks_per_node: int = 8,
    rule: str = "even",
    mode: str = "low_latency",
    windowing: Windowing | None = None,
    recorded_ranks: int | None = None,
    seed: int = 0,
    speed: Sequence[float] | None = None,
) -> Outcome:
    """One plan on one stream of batches."""
    topology = uniform(plan.ranks, ranks_per_node, int(plan.slots_per_rank.max()))
    if speed is not None:
        topology = replace(topology, speed=np.array(speed))
    (outcome,) = replay(
        [batches] if isinstance(batches, TokenBatch) else batches,
        [subject(plan, topology, rule, cost_of(plan, topology, mode=mode), seed)],
        links(topology, mode),
        windowing or Windowing(steps=2),
        plan.ranks if recorded_ranks is None else recorded_ranks,
    )
    return outcome


def steps_of(batch: TokenBatch) -> Iterator[TokenBatch]:
    """The steps of a batch, one at a time."""
    for step in np.unique(batch.step):
        yield batch.select(sealed(batch.step == step))


def same(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes hold the same numbers."""
    arrays = (
        "window_imbalance", "window_bound", "layer_seconds", "active_slots", "expert_tokens", "rank_pairs", "node_pairs"
    )  # fmt: skip
    return (first.tokens, first.steps, first.peak) == (second.tokens, second.steps, second.peak) and all(
        np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True) for name in arrays
    )
