"""Seconds of a rank's experts as a function of its rows: the mean, and what chance adds at given rows.

Rows that reach a rank fall on its slots by the slots' shares of the traffic. For each of a ladder of row counts some
such splits are drawn and costed by the cost model itself, whatever it is; between the rungs seconds are linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray, frozen, stream
from easybalance_sim.cost.anchored import AnchoredCost
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.cost.look_up import FARTHEST_EXTRAPOLATION

DRAWS = 16
FIRST_RUNGS, RUNG = 8, 1.15
"""Each of the first rows has a rung of its own, then each rung is so many times the one before."""
KNOT = 0.5
"""Of `StepModel.knot`: knots are sqrt(rows) apart by this, so that lines between them are within 1 % (measured)."""
LINEAR_ROWS_OF_SLOT = 2048
"""With so many rows per slot each is a whole number of large tiles and the seconds grow linearly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """rows: float64[J] rising from 0 · mean: float64[L, R, J] seconds · sd: float64[L, R, J] of them at given rows."""

    rows: FloatArray
    mean: FloatArray
    sd: FloatArray

    def at_knots(self, values: FloatArray) -> FloatArray:
        """[..., G] of [..., J]: values at (g · KNOT)² rows up to the last rung."""
        knots = (KNOT * np.arange(int(np.sqrt(self.rows[-1]) / KNOT) + 1)) ** 2
        place = np.clip(np.searchsorted(self.rows, knots, side="right") - 1, 0, len(self.rows) - 2)
        part = (knots - self.rows[place]) / (self.rows[place + 1] - self.rows[place])
        return np.asarray(values[..., place] * (1 - part) + values[..., place + 1] * part)


def curves(cost: LayerCost, share: FloatArray, distinct: FloatArray, most_rows: float, seed: int) -> Curves:
    """The curves of every layer and rank, up to `most_rows` or until they are lines.

    share: float64[L, P] of each slot's tokens (any scale) · distinct: float64[L, R] distinct tokens per row of a rank.
    """
    slots = _by_rank(share, cost.slot_start)
    chance = slots / np.maximum(slots.sum(axis=-1, keepdims=True), 1e-300)
    chance[..., 0] += 1.0 - chance.sum(axis=-1)
    rungs = ladder(min(most_rows, _last_rows(cost, slots.shape[-1])))
    rng = stream(seed, "rows on slots")
    drawn = []
    for _ in range(DRAWS):
        counts = rng.multinomial(np.broadcast_to(rungs[:, None, None], (len(rungs), *chance.shape[:2])), chance)
        tokens = np.rint(rungs[:, None, None] * distinct)
        drawn.append(rank_seconds(cost, counts, tokens))
    each = np.moveaxis(np.stack(drawn), 1, -1)
    mean = np.maximum.accumulate(each.mean(axis=0), axis=-1)
    return Curves(rows=rungs.astype(np.float64), mean=mean, sd=each.std(axis=0, ddof=1))


def ladder(most_rows: float) -> IntArray:
    """int64[J] 0, 1, 2, … and then ever wider apart, the last one ≥ most_rows."""
    rungs = list(range(FIRST_RUNGS + 1))
    while rungs[-1] < most_rows:
        rungs.append(max(rungs[-1] + 1, int(rungs[-1] * RUNG)))
    return np.array(rungs, np.int64)


def rank_seconds(cost: LayerCost, by_rank: AnyArray, distinct: AnyArray) -> FloatArray:
    """float64[W, L, R] seconds of every rank alone: each is given to the cost model as a layer of its own.

    by_rank: [W, L, R, S] rows of each slot, ranks with fewer slots padded with 0 · distinct: [W, L, R] tokens.
    """
    steps, layers, ranks, slots = by_rank.shape
    seconds, _ = cost.expert.seconds(
        frozen(by_rank.reshape(steps, layers * ranks, slots), np.int32),
        frozen(distinct.reshape(steps, layers * ranks, 1), np.int32),
        frozen([0, slots], np.int32),
        frozen(np.ones(1)),
    )
    return np.asarray(seconds.reshape(steps, layers, ranks) / cost.speed)


def slot_rows(slot_tokens: AnyArray, cost: LayerCost) -> AnyArray:
    """[W, L, R, S] of [W, L, P], as `rank_seconds` takes them."""
    return _by_rank(slot_tokens, cost.slot_start)


def _by_rank(values: AnyArray, slot_start: AnyArray) -> AnyArray:
    """[..., R, S] of [..., P]; ranks with fewer than S slots get zeros."""
    own = np.diff(slot_start)
    padded = np.zeros((*values.shape[:-1], len(own), int(own.max())), values.dtype)
    padded[..., np.arange(own.max()) < own[:, None]] = values
    return padded


def _last_rows(cost: LayerCost, slots: int) -> float:
    """Where the curves may end: they are lines there, or the user's table does."""
    rows = float(slots * LINEAR_ROWS_OF_SLOT)
    if isinstance(cost.expert, AnchoredCost):
        rows = min(rows, FARTHEST_EXTRAPOLATION * cost.expert.table.tokens[-1] / RUNG)
    return rows
