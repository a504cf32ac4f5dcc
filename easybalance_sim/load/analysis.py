"""What the skew of a trace is made of: how uneven, how lasting, and how much of it is batch noise."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen
from easybalance_sim.load.hotspots import per_node

HOT_SHARE = 0.1
NOISE_ONLY, MOSTLY_REAL = 1.5, 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Skew:
    """Per layer, over the whole trace: max_over_mean, entropy (1 = even), gini (0 = even); float64[L] each."""

    max_over_mean: FloatArray
    entropy: FloatArray
    gini: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Persistence:
    """Between consecutive windows, float64[L], NaN with fewer than two: correlation (mean Pearson r of the expert
    loads) and hot_overlap (share of the top tenth of the experts that is still there)."""

    correlation: FloatArray
    hot_overlap: FloatArray


def skew(total: IntArray) -> Skew:
    """How uneven the experts of each layer are; total: int64[L, E] assignments."""
    load = np.sort(total.astype(np.float64), axis=1)
    experts = load.shape[1]
    share = _over(load, load.sum(axis=1, keepdims=True))
    logs = np.log(share, where=share > 0, out=np.zeros_like(share))
    even = np.log(experts) if experts > 1 else 1.0
    weight = 2 * np.arange(1, experts + 1) - experts - 1
    return Skew(
        max_over_mean=frozen(share[:, -1] * experts),
        entropy=frozen(-(share * logs).sum(axis=1) / even),
        gini=frozen((share * weight).sum(axis=1) / experts),
    )


def persistence(tokens: IntArray) -> Persistence:
    """How alike consecutive windows are; tokens: int64[W, L, E]."""
    windows, layers, experts = tokens.shape
    if windows < 2:
        unknown = frozen(np.full(layers, np.nan))
        return Persistence(correlation=unknown, hot_overlap=unknown)
    kept = max(1, round(HOT_SHARE * experts))
    correlation, overlap = np.zeros(layers), np.zeros(layers)
    # One pair of windows at a time: the whole [W, L, E] in floats would triple the memory of a long trace.
    for before, after in itertools.pairwise(tokens):
        correlation += _pearson(before, after)
        overlap += (_top(before, kept) & _top(after, kept)).sum(axis=1) / kept
    return Persistence(correlation=frozen(correlation / (windows - 1)), hot_overlap=frozen(overlap / (windows - 1)))


def over_dispersion(tokens: IntArray, top_k: int) -> FloatArray:
    """float64[L] variance of the window loads over what independent tokens would give; 1 = batch noise only.

    tokens: int64[W, L, E]. Σ over windows of Pearson's χ² = Σ_e (n_e − n·p_e)² / (n·p_e), with p_e the expert's share
    over all windows, divided by (W − 1)·(E′ − K): a token never picks an expert twice, so the variance of n_e is
    n·p_e·(1 − K·p_e) and the terms of one window sum to E′ − K over the E′ experts that were used at all.
    NaN where fewer than two windows have traffic or E′ ≤ K.
    """
    layers = tokens.shape[1]
    total = tokens.sum(axis=0).astype(np.float64)
    share = _over(total, total.sum(axis=1, keepdims=True))
    chi_square, used_windows = np.zeros(layers), np.zeros(layers)
    for window in tokens:
        assignments = window.sum(axis=1, keepdims=True)
        expected = assignments * share
        chi_square += _over((window - expected) ** 2, expected).sum(axis=1)
        used_windows += assignments[:, 0] > 0
    freedom = (used_windows - 1) * ((total > 0).sum(axis=1) - top_k)
    unknown: FloatArray = np.full(layers, np.nan)
    return frozen(np.divide(chi_square, freedom, out=unknown, where=freedom > 0))


def reading(dispersion: float) -> str:
    """The over-dispersion figure in plain words."""
    if np.isnan(dispersion):
        return "unknown: needs two windows of traffic and tokens that differ in their experts"
    if dispersion < NOISE_ONLY:
        return "batch noise: windows differ about as much as independent tokens would make them differ"
    real = f"{100 * (1 - 1 / dispersion):.0f} % of the variance between windows is real"
    if dispersion < MOSTLY_REAL:
        return f"part noise, part real: {real} (topics, tenants, bursts), the rest is batch noise"
    return f"real: {real} (topics, tenants, bursts), so windows matter and averages hide it"


def imbalance(load: AnyArray) -> FloatArray:
    """float64[…] max over mean along the last axis (ranks or nodes); 1 where there is no load."""
    mean = load.mean(axis=-1)
    even: FloatArray = np.ones(mean.shape)
    np.divide(load.max(axis=-1), mean, out=even, where=mean > 0)
    return even


def placed_imbalance(tokens: IntArray, share: FloatArray, node_of_rank: IntArray) -> tuple[FloatArray, FloatArray]:
    """float64[W, L] max/mean over ranks, and over nodes (load per rank of a node).

    tokens: int64[W, L, E] · share: float64[L, E, R] share of each expert's tokens that a rank serves (see
    `hotspots.even_share`) · node_of_rank: int64[R].
    """
    member = per_node(node_of_rank)
    ranks, nodes = np.ones(tokens.shape[:2]), np.ones(tokens.shape[:2])
    for row, window in enumerate(tokens):
        load = (window[:, None, :] @ share)[:, 0, :]
        ranks[row], nodes[row] = imbalance(load), imbalance(load @ member)
    return frozen(ranks), frozen(nodes)


def _pearson(a: IntArray, b: IntArray) -> FloatArray:
    """[L] correlation over experts; 1 for two flat windows, 0 when only one is flat."""
    x, y = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    flat: FloatArray = (~x.any(axis=1) & ~y.any(axis=1)).astype(np.float64)
    np.divide((x * y).sum(axis=1), scale, out=flat, where=scale > 0)
    return flat


def _top(window: IntArray, kept: int) -> AnyArray:
    chosen = np.argsort(-window, axis=1, kind="stable")[:, :kept]
    mask = np.zeros(window.shape, np.bool_)
    np.put_along_axis(mask, chosen, True, axis=1)
    return mask


def _over(a: AnyArray, b: AnyArray) -> FloatArray:
    """a / b, 0 where b is 0."""
    quotient: FloatArray = np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)
    return quotient
