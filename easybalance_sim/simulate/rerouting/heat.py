"""Which ranks are hot, and what lies on them."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.offsets.controllers import HEAT, LAYER
from easybalance_sim.simulate.offsets.loop import Sensor
from easybalance_sim.simulate.steps.balance import relative

WINDOW_SENSOR = "rank loads of executed steps, summed over a window"


def require_signal(signal: str, where: str) -> None:
    """Raise `UsageError` unless ranks are judged layer by layer or over all layers."""
    if signal not in (LAYER, HEAT):
        raise UsageError(f"no signal {signal!r}", where=where, fix=f"{LAYER} or {HEAT}")


def rank_excess(signal: str, sensor: Sensor) -> FloatArray:
    """float64[L, R] windowed load / mean - 1 of each rank in a layer, or over all layers; 0 while nothing is known."""
    loads = sensor.rank_loads()
    if signal == LAYER:
        return relative(loads)
    of_rank: FloatArray = np.broadcast_to(relative(loads.sum(axis=0)), loads.shape).copy()
    return of_rank


def only_on(ranks: BoolArray, shares: FloatArray) -> BoolArray:
    """bool[L, E] experts all of whose replicas lie on the ranks bool[L, R]; shares: float64[L, E, R]."""
    elsewhere = np.matmul(shares, (~ranks)[:, :, None].astype(np.float64))[:, :, 0]
    on: BoolArray = elsewhere <= 0
    return on


def relative_threshold(utilisation: float, mean_utilisation: float) -> float:
    """The heat, relative to the mean rank, at which a rank is used to `utilisation` while ranks are on average used to
    `mean_utilisation`: thresholds like "above 90 %" are absolute, those of tiers relative."""
    if not 0 < mean_utilisation <= 1 or not 0 < utilisation <= 1:
        raise UsageError("utilisations lie in (0, 1]", where=f"{utilisation:g} at a mean of {mean_utilisation:g}")
    return utilisation / mean_utilisation
