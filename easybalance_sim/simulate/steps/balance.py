"""How even rank loads are: in every step, in windows, and as heat over all layers.

A step's imbalance is what a barrier per layer waits for; a window's is what a slow sensor or a slow resource sees. They
are different things: a controller may even out the second and leave the first as it was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray

WINDOW_STEPS = 12
"""Steps of a window: 300 ms of 25 ms steps."""

PERCENTILE = 99.0


@dataclass(frozen=True, kw_only=True)
class Balance:
    """max/mean rank load, mean and 99th percentile. step: of one step of one layer · window: of sums over the steps of
    a window, sliding · heat: of sums over all layers · heat_std, layer_std: standard deviation of the window's relative
    rank load, over layers and of one layer."""

    step_mean: float
    step_p99: float
    window_mean: float
    window_p99: float
    heat_step_mean: float
    heat_mean: float
    heat_p99: float
    heat_std: float
    layer_std: float

    def to_dict(self) -> dict[str, float]:
        """For reports."""
        return asdict(self)


def balance(loads: FloatArray, window: int = WINDOW_STEPS) -> Balance:
    """The measures of loads float64[S, L, R], assignments of each rank; a step of a layer without any is left out.

    window: steps, no more than S.
    """
    sums = window_sums(loads, min(window, len(loads)))
    step, windows = ratio(loads), ratio(sums)
    heat = ratio(sums.sum(axis=1))
    return Balance(
        step_mean=_mean(step),
        step_p99=_p99(step),
        window_mean=_mean(windows),
        window_p99=_p99(windows),
        heat_step_mean=_mean(ratio(loads.sum(axis=1))),
        heat_mean=_mean(heat),
        heat_p99=_p99(heat),
        heat_std=_std(relative(sums.sum(axis=1))),
        layer_std=_std(relative(sums)),
    )


def window_sums(loads: FloatArray, window: int) -> FloatArray:
    """float64[S - window + 1, …] sums over every run of `window` steps."""
    total = np.cumsum(loads, axis=0, dtype=np.float64)
    sums: FloatArray = total[window - 1 :].copy()
    sums[1:] -= total[:-window]
    return sums


def windows_apart(values: AnyArray, window: int) -> AnyArray:
    """int64 or float64[W, …] sums of values [S, …] over `window` consecutive steps each, apart from each other.

    Where steps do not come out even it is the first that are left out: the newest say most. Fewer steps than a window
    are one.
    """
    size = max(1, min(window, len(values)))
    whole = np.asarray(values)[len(values) % size :].reshape(-1, size, *values.shape[1:])
    kind = np.int64 if np.issubdtype(whole.dtype, np.integer) else np.float64
    sums: AnyArray = whole.sum(axis=1, dtype=kind)
    return sums


def ratio(loads: FloatArray) -> FloatArray:
    """max/mean over the last axis (ranks), NaN without load."""
    mean = loads.mean(axis=-1)
    out: FloatArray = np.full(mean.shape, np.nan)
    np.divide(loads.max(axis=-1), mean, out=out, where=mean > 0)
    return out


def relative(loads: FloatArray) -> FloatArray:
    """load/mean - 1 along the last axis (ranks), 0 without load."""
    mean = loads.mean(axis=-1, keepdims=True)
    out: FloatArray = np.zeros(loads.shape)
    np.divide(loads, mean, out=out, where=mean > 0)
    out -= (mean > 0).astype(np.float64)
    return out


def _mean(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else 1.0


def _p99(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(np.percentile(known, PERCENTILE)) if known.size else 1.0


def _std(values: FloatArray) -> float:
    return float(values.std()) if values.size else 0.0
