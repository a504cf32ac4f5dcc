"""Bounded fit of the five numbers of the expert formula (`cost.expert`) to measured rows.

    0 < eff_bw, eff_flop ≤ 1 · q ≥ 1 · c0, tok ≥ 0, least squares of log(predicted / measured) with a soft-L1 loss.

Without the bounds terms trade against each other into efficiencies above 1 that mean nothing on another GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from easybalance_sim.arrays import BoolArray, FloatArray
from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.work import Work

_LOW, _HIGH = (1.0, 0.02, 0.02, 1.0, 0.0), (1000.0, 1.0, 1.0, 25.0, 150.0)
_START = (30.0, 0.8, 0.6, 1.5, 5.0)
_UNIT = (30.0, 1.0, 1.0, 1.0, 20.0)
_SOFT = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Peaks:
    """Nominal HBM bytes/s, FLOP/s of the dtype, bytes per weight."""

    bytes_per_s: float
    flops: float
    weight_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertNumbers:
    """The fitted five: c0_us, eff_bw, eff_flop, q, tok, as `cluster.hardware.ExpertKernel` names them."""

    c0_us: float
    eff_bw: float
    eff_flop: float
    q: float
    tok: float

    @property
    def array(self) -> FloatArray:
        """float64[5] in the order of the fields."""
        return np.array([self.c0_us, self.eff_bw, self.eff_flop, self.q, self.tok])


def predicted_us(numbers: ExpertNumbers, work: Work, peaks: Peaks) -> FloatArray:
    """float64[N] µs of every row: the mean of the costs of its draws, never the cost of their mean."""
    return _predicted(numbers.array, work, peaks)


def fit_expert(work: Work, peaks: Peaks, *, free_tok: bool = True) -> ExpertNumbers:
    """The bounded fit. free_tok: false fixes `tok` at 0 (masked kernels, which move no rows themselves).

    Raises `ProfileError` for fewer rows than numbers, and for a row without a time or without tokens.
    """
    free = 5 if free_tok else 4
    if len(work.us) < free:
        raise ProfileError(f"{len(work.us)} rows cannot fit {free} numbers", where="profile fit", fix="add rows")
    if work.us.min() <= 0 or work.pairs.max(axis=1).min() <= 0:
        raise ProfileError("a row has no time or no tokens", where="profile fit", fix="remove the row")
    unit = np.array(_UNIT)

    def residuals(scaled: FloatArray) -> FloatArray:
        values = np.zeros(5)
        values[:free] = scaled * unit[:free]
        return np.asarray(np.log(_predicted(values, work, peaks) / work.us))

    low, high, start = (np.array(bound)[:free] / unit[:free] for bound in (_LOW, _HIGH, _START))
    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=_SOFT, x_scale="jac")
    return ExpertNumbers(**_named(np.append(found.x * unit[:free], [0.0] * (5 - free))))


def cross_predicted(work: Work, peaks: Peaks, groups: Sequence[object], *, free_tok: bool = True) -> FloatArray:
    """float64[N] µs of every row from a fit that saw no row of its group."""
    us = np.zeros(len(work.us))
    for held in each_group(groups):
        numbers = fit_expert(work.take(~held), peaks, free_tok=free_tok)
        us[held] = predicted_us(numbers, work.take(held), peaks)
    return us


def each_group(groups: Sequence[object]) -> Iterator[BoolArray]:
    """bool[N] members of one group after another, in the order in which they first appear."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    labels = np.array([numbers[group] for group in groups])
    for label in range(len(numbers)):
        yield labels == label


def _named(values: FloatArray) -> dict[str, float]:
    return dict(zip(("c0_us", "eff_bw", "eff_flop", "q", "tok"), map(float, values), strict=True))


def _predicted(values: FloatArray, work: Work, peaks: Peaks) -> FloatArray:
    c0_us, eff_bw, eff_flop, q, tok = values
    weight_us = 1e6 * peaks.weight_bytes / (peaks.bytes_per_s * eff_bw) * work.weights
    tile_us = 2e6 / (peaks.flops * eff_flop) * work.weights
    reads, flops = work.active * weight_us[:, None], work.tiles * tile_us[:, None]
    high, low = np.maximum(reads, flops), np.minimum(reads, flops)
    share = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
    rows = work.pairs * (2.0 * work.row_values)[:, None] + tok * work.distinct * (2.0 * work.hidden)[:, None]
    us = c0_us + high * (1.0 + share**q) ** (1.0 / q) + 1e6 * rows / peaks.bytes_per_s
    return np.asarray(np.where(work.pairs > 0, us, 0.0).mean(axis=1))
