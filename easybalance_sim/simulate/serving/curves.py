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

DRAWS, DRAWS_BEYOND, FEW_ROWS_OF_SLOT = 16, 4, 32
"""Splits drawn up to so many rows per slot, and beyond: there they hardly differ."""
FIRST_RUNGS, GROWTH = 8, 0.15
"""Each of the first rows has a rung of its own, then each is wider apart by so much of the one before."""
KNOT, SMOOTH_SLOTS = 0.5, 8
"""Knots and rungs of a rank with so many slots or more. With fewer the steps of single tiles show: all the closer."""
LINEAR_ROWS_OF_SLOT = 2048
"""With so many rows per slot each is a whole number of large tiles and the seconds grow linearly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """rows: float64[J] rising from 0 · mean: float64[L, R, J] seconds · sd: float64[L, R, J] of them at given rows ·
    knot: of `StepModel.knot`."""

    knot: float
    rows: FloatArray
    mean: FloatArray
    sd: FloatArray

    def at_knots(self, values: FloatArray) -> FloatArray:
        """[..., G] of [..., J]: values at (g · knot)² rows up to the last rung."""
        knots = (self.knot * np.arange(int(np.sqrt(self.rows[-1]) / self.knot) + 1)) ** 2
        place = np.clip(np.searchsorted(self.rows, knots, side="right") - 1, 0, len(self.rows) - 2)
        part = (knots - self.rows[place]) / (self.rows[place + 1] - self.rows[place])
        found = np.asarray(values[..., place] * (1 - part) + values[..., place + 1] * part)
        # What goes on beyond is the slope of the last half, not that of a last tile.
        half = int(np.searchsorted(knots, knots[-1] / 2))
        slope = (found[..., -2] - found[..., half]) / (knots[-2] - knots[half])
        found[..., -1] = found[..., -2] + slope * (knots[-1] - knots[-2])
        return found


def curves(cost: LayerCost, share: FloatArray, distinct: FloatArray, most_rows: float, seed: int) -> Curves:
    """The curves of every layer and rank, up to `most_rows` or until they are lines.

    share: float64[L, P] of each slot's tokens (any scale) · distinct: float64[L, R] distinct tokens per row of a rank.
    """
    slots = _by_rank(share, cost.slot_start)
    chance = slots / np.maximum(slots.sum(axis=-1, keepdims=True), 1e-300)
    chance[..., 0] += 1.0 - chance.sum(axis=-1)
    fine = min(1.0, slots.shape[-1] / SMOOTH_SLOTS)
    rungs = ladder(min(most_rows, _last_rows(cost, slots.shape[-1])), fine)
    rng = stream(seed, "rows on slots")
    few = int(np.searchsorted(rungs, FEW_ROWS_OF_SLOT * slots.shape[-1]))
    parts = [
        _drawn(cost, part, chance, distinct, draws, rng)
        for part, draws in ((rungs[:few], DRAWS), (rungs[few:], DRAWS_BEYOND))
        if len(part)
    ]
    mean, sd = (np.concatenate(values, axis=-1) for values in zip(*parts, strict=True))
    return Curves(knot=KNOT * fine, rows=rungs.astype(np.float64), mean=np.maximum.accumulate(mean, axis=-1), sd=sd)


def _drawn(
    cost: LayerCost, rungs: IntArray, chance: FloatArray, distinct: FloatArray, draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """float64[L, R, J] mean and sd of the seconds; chance: float64[L, R, S] of each slot of a rank, sum 1."""
    whole = np.broadcast_to(rungs[:, None, None], (len(rungs), *chance.shape[:2]))
    tokens = np.rint(whole * distinct)
    each = np.stack([rank_seconds(cost, rng.multinomial(whole, chance), tokens) for _ in range(draws)])
    return np.moveaxis(each.mean(axis=0), 0, -1), np.moveaxis(each.std(axis=0, ddof=1), 0, -1)


def ladder(most_rows: float, fine: float = 1.0) -> IntArray:
    """int64[J] 0, 1, 2, … and then ever wider apart (by `fine` of the usual), the last one ≥ most_rows."""
    rungs = list(range(FIRST_RUNGS + 1))
    while rungs[-1] < most_rows:
        rungs.append(max(rungs[-1] + 1, int(rungs[-1] * (1 + GROWTH * fine))))
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
        rows = min(rows, FARTHEST_EXTRAPOLATION * cost.expert.table.tokens[-1] / (1 + GROWTH))
    return rows
