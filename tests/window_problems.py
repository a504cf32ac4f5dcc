"""Problems for searches: windows that mix topics, windows that differ by chance only."""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Problem

LAYERS, EXPERTS = 3, 32


def topic_windows(
    seed: int, windows: int, *, layers: int = LAYERS, experts: int = EXPERTS, topics: int = 4, tokens: int = 4096,
    concentration: float = 3.0, model: int = 0,
) -> AnyArray:  # fmt: skip
    """int64[W, L, E]: each window's mix of topics is a Dirichlet draw; each topic has its own lognormal experts, which
    depend on `model` alone."""
    rng, router = np.random.default_rng(seed), np.random.default_rng(model)
    weight = np.exp(router.normal(0, 1, (topics, layers, experts)))
    weight /= weight.sum(axis=2, keepdims=True)
    mix = rng.dirichlet(np.full(topics, concentration / topics), windows)
    return rng.multinomial(tokens, np.einsum("wt,tle->wle", mix, weight))


def chance_windows(
    seed: int, windows: int, *, layers: int = LAYERS, experts: int = EXPERTS, tokens: int = 4096
) -> AnyArray:
    """int64[W, L, E] independent draws from one mixture per layer."""
    rng = np.random.default_rng(seed)
    weight = np.exp(np.random.default_rng(0).normal(0, 1, (layers, experts)))
    return rng.multinomial(tokens, np.broadcast_to(weight / weight.sum(1, keepdims=True), (windows, layers, experts)))


def problem_of(windows: AnyArray, topology: Topology | None = None, **more: Any) -> Problem:
    """The forecast is the mean of the windows; 8 ranks × 5 slots unless said."""
    return Problem(forecast=windows.mean(axis=0), windows=windows, topology=topology or uniform(8, 8, 5), **more)


def rank_loads(plan: Plan, windows: AnyArray) -> FloatArray:
    """float64[W, L, R] with an even split over replicas."""
    layer = np.arange(plan.layers)[:, None]
    per_slot = (windows / plan.replicas)[:, layer, plan.expert_of_slot]
    loads: FloatArray = np.add.reduceat(per_slot, plan.slot_start[:-1], axis=2)
    return loads


def balance(plan: Plan, windows: AnyArray) -> tuple[float, float]:
    """Mean over layers of the mean and of the P99 over windows of busiest rank / mean rank."""
    loads = rank_loads(plan, windows)
    ratio = loads.max(axis=2) / loads.mean(axis=2)
    return float(ratio.mean()), float(np.quantile(ratio, 0.99, axis=0).mean())
