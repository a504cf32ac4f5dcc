"""Rows of requests in service, from those of the routed requests that they stand for.

A recorded row is short: part of what sets its mean apart from the others' is chance, φ(n)·pooled/n for n tokens. Taken
as it is, every request in service would have that chance once and for all, in each of its tokens: uniform routing would
be skewed. So the means of a workload's prompts, and of its answers, are drawn together about their own mean,

    mean = centre + sqrt(τ² / (τ² + φ(n)·pooled/n)) · (row's mean - centre),

after which they vary by τ², which is what requests vary by beyond chance (the square root, as a population has to vary
as much as the true one does; the best guess for each single request would vary less: Louis, JASA 1984). τ² is found in
each layer by DerSimonian and Laird's moments (Controlled Clinical Trials, 1986), all ranks and workloads together, and
counts where it stands out from chance by `STANDS_OUT` standard errors.

The variance of a run of m tokens about such a mean is φ(m)·m·variance: no row is gone round, and none comes to an end.
"""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.simulate.serving.moments import RowSums, alike
from easybalance_sim.simulate.serving.routed import Routed

STANDS_OUT = 2.0


def requests_like(routed: Routed, sums: RowSums, run_tokens: int) -> tuple[AnyArray, AnyArray]:
    """mean and spread, float32[2N, L, R], of requests that are like the routed ones; run_tokens: m of prompts, 0 = as
    many as are in the row."""
    kind, tokens = _kinds(routed), sums.tokens[:, 0, 0]
    chance = alike(tokens, sums.like) / tokens
    between = between_requests(sums, kind, chance)
    mean = np.empty_like(sums.mean)
    for one in np.unique(kind):
        mine = kind == one
        mean[mine] = _drawn_together(sums.mean[mine], between, chance[mine, None] * sums.pooled.sum(axis=1))
    runs = np.full(len(tokens), float(run_tokens)) if run_tokens else tokens
    of_row = sums.variance.astype(np.float32)[routed.stretch]
    of_row[::2] *= alike(runs, sums.like).astype(np.float32)[routed.stretch[::2], None, None]
    return mean.astype(np.float32)[routed.stretch], of_row


def between_requests(sums: RowSums, kind: IntArray, chance: FloatArray) -> FloatArray:
    """float64[L] τ², summed over ranks. kind: int64[U] rows of the same centre · chance: float64[U] variance of a row's
    mean over that of a token."""
    tokens = sums.tokens[:, 0, 0]
    above, weight, error = (np.zeros(len(sums.pooled)) for _ in range(3))
    # What one rank gets the others do not: their sum is given, which scatters `apart` more.
    tied = sums.pooled.shape[1] / max(1, sums.pooled.shape[1] - 1)
    for one in np.unique(kind):
        mine, whole = kind == one, tokens[kind == one].sum()
        centre = (sums.tokens[mine] * sums.mean[mine]).sum(axis=0) / whole
        apart = (sums.tokens[mine] * (sums.mean[mine] - centre) ** 2).sum(axis=(0, 2))
        expected = tokens[mine] * chance[mine] * (1 - tokens[mine] / whole)
        above += apart - expected.sum() * sums.pooled.sum(axis=1)
        error += 2 * (expected * tokens[mine] * chance[mine]).sum() * (sums.pooled**2).sum(axis=1) * tied
        weight += whole - (tokens[mine] ** 2).sum() / whole
    found = (above - STANDS_OUT * np.sqrt(error)) / np.maximum(weight, 1e-300)
    return np.asarray(np.where(weight > 0, np.maximum(found, 0.0), 0.0))


def _drawn_together(mean: FloatArray, between: FloatArray, chance: FloatArray) -> FloatArray:
    """float64[n, L, R] of the rows of one centre; between: float64[L] · chance: float64[n, L] variance by chance."""
    whole = between + chance
    weight = 1 / np.maximum(whole, 1e-300)
    centre = np.einsum("nl,nlr->lr", weight / weight.sum(axis=0), mean)
    kept = np.sqrt(np.divide(between, whole, out=np.ones_like(whole), where=whole > 0))
    return np.asarray(centre + kept[..., None] * (mean - centre))


def _kinds(routed: Routed) -> IntArray:
    """int64[U]: prompts (or whole requests) and answers of every workload."""
    kind = np.zeros(len(routed.start) - 1, np.int64)
    kind[routed.stretch[1::2]] = 2 * routed.workload.astype(np.int64) + 1
    kind[routed.stretch[::2]] = 2 * routed.workload.astype(np.int64)
    return kind
