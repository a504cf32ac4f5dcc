"""Problems where experts are used in groups, so that a good placement keeps tokens on their node."""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.load.sampling import TokenSample
from easybalance_sim.policies import Problem

LAYERS, EXPERTS, TOP_K, TOKENS = 2, 16, 3, 400


def grouped_tokens(seed: int, groups: int, loyalty: float = 0.9, tokens: int = TOKENS) -> AnyArray:
    """uint8[T, L, K]: a token draws its experts from one group of interleaved experts, each with odds 1 - loyalty from
    anywhere."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, (tokens, LAYERS, 1))
    score = rng.random((tokens, LAYERS, EXPERTS))
    stays = (np.arange(EXPERTS) % groups == group) & (rng.random(score.shape) < loyalty)
    return np.argsort(-(score + stays), axis=2)[:, :, :TOP_K].astype(np.uint8)


def windows_of(experts: AnyArray, windows: int) -> IntArray:
    """int64[W, L, E] counts of consecutive equal windows."""
    out = np.zeros((windows, LAYERS, EXPERTS), np.int64)
    for window, part in enumerate(np.array_split(experts, windows)):
        for layer in range(LAYERS):
            out[window, layer] = np.bincount(part[:, layer].ravel(), minlength=EXPERTS)
    return out


def grouped_problem(seed: int = 0, nodes: int = 2, topology: Topology | None = None, **more: Any) -> Problem:
    """4 ranks × 5 slots on 2 nodes unless said; the tokens come from nowhere in particular."""
    experts = grouped_tokens(seed, nodes)
    windows = windows_of(experts, 16)
    given = {"sample": TokenSample(experts=experts, source_node=np.full(len(experts), -1, np.int16))} | more
    return Problem(
        forecast=windows.mean(axis=0),
        windows=windows,
        topology=topology or uniform(2 * nodes, 2, -(-20 // (2 * nodes)) + 1),
        **given,
    )
