"""Seconds of the all-to-all phases as lines: so much at least, so much per row that arrives, per token that leaves.

Copies of sampled steps are costed rank by rank by the cost model. In steps in which all ranks send as much, a rank's
seconds beyond the fixed ones are put down to its rows; in steps in which one rank alone sends, to its tokens. The fixed
seconds are those that twice the copies do not double: exact for the profile's rows; of a measured table, which is bent,
it is the secant from the sampled steps to twice as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, sealed
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.cost.network import PhaseCost
from easybalance_sim.replay.engine import Dispatched


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkLines:
    """As in `StepModel`: arrive_s: float64[2, L, R] · even_arrive_s: float64[2, L] · leave_s: float64[2, L] per token
    of a data-parallel rank · fixed_s: float64[2]."""

    arrive_s: FloatArray
    even_arrive_s: FloatArray
    leave_s: FloatArray
    fixed_s: FloatArray


def link_lines(cost: LayerCost, even: Sequence[Dispatched], alone: Sequence[Dispatched], tokens: int) -> LinkLines:
    """The lines of both phases.

    even: steps whose tokens come from all ranks alike · alone: steps of `tokens` tokens, each from one data-parallel
    rank.
    """
    found = [_phase(phase, even, alone, tokens) for phase in (cost.dispatch, cost.combine)]
    arrive, even_arrive, leave, fixed = (np.stack(part) for part in zip(*found, strict=True))
    return LinkLines(arrive_s=arrive, even_arrive_s=even_arrive, leave_s=leave, fixed_s=fixed)


def _phase(
    cost: PhaseCost, even: Sequence[Dispatched], alone: Sequence[Dispatched], tokens: int
) -> tuple[FloatArray, ...]:
    rows = sum(part.rank_rows.sum(axis=0, dtype=np.float64) for part in even)
    single, double = (_seconds(cost, even, times) for times in (1, 2))
    sent = single > 0
    if not sent.any():
        nothing = np.zeros(rows.shape)
        return nothing, nothing[:, 0], nothing[:, 0], np.zeros(())
    fixed = max(0.0, float((2 * single - double)[sent].mean()))
    moved = np.maximum(single - fixed * sent, 0.0).sum(axis=0)
    arrive = _per_row(moved, rows)
    left = _seconds(cost, alone, 1).max(axis=2)
    leave = np.maximum(left - fixed * (left > 0), 0.0).sum(axis=0) / (tokens * len(left))
    return arrive, moved.sum(axis=1) / rows.sum(axis=1), leave, np.array(fixed)


def _per_row(moved: FloatArray, rows: FloatArray) -> FloatArray:
    """float64[L, R] seconds per row. Where few rows arrive it is what leaves that takes long: such a rank has no more
    per row than those with the mean and more."""
    busy = rows >= rows.mean(axis=1, keepdims=True)
    usual = (moved * busy).sum(axis=1, keepdims=True) / np.maximum((rows * busy).sum(axis=1, keepdims=True), 1.0)
    own = moved / np.maximum(rows, 1.0)
    return np.asarray(np.where(busy, own, np.minimum(own, usual)))


def _seconds(cost: PhaseCost, parts: Sequence[Dispatched], times: int) -> FloatArray:
    """float64[W, L, R] seconds of every rank alone, with `times` the copies."""
    return np.concatenate([_alone(cost, part.rdma * times, part.nvlink * times) for part in parts])


def _alone(cost: PhaseCost, rdma: AnyArray, nvlink: AnyArray) -> FloatArray:
    steps, layers, ranks = rdma.shape
    alone = (steps, layers * ranks, 1)
    return np.asarray(cost.seconds(sealed(rdma.reshape(alone)), sealed(nvlink.reshape(alone))).reshape(rdma.shape))
