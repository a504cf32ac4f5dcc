"""Forecasts: what load per (layer, expert) the next windows are expected to bring."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.load.windows import LoadWindows

METHODS = ("mean", "last", "ema-fast", "ema-slow")
FAST_HALF_LIFE, SLOW_HALF_LIFE = 4.0, 64.0
"""Windows after which a count weighs half: fast tells of sudden skew, slow carries the plan."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadForecast:
    """Expected assignments per window.

    tokens: float64[L, E] · windows: the sample it was made from · method: one of `METHODS` · half_life: in windows,
    0 for `mean` and `last`.
    """

    tokens: FloatArray
    windows: LoadWindows
    method: str
    half_life: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", frozen(self.tokens, np.float64))


def forecast(windows: LoadWindows, method: str = "mean", half_life: float = 0.0) -> LoadForecast:
    """Forecast the load per window from W ≥ 1 windows in time order.

    mean: the average · last: the last window · ema-fast, ema-slow: exponential moving average with `half_life` windows
    (0 = the method's default); started at the mean so that few windows are not dominated by the first.
    Raises `UsageError` for an unknown method or no window.
    """
    if method not in METHODS:
        fix = f"{did_you_mean(method, METHODS)}choose {', '.join(METHODS)}"
        raise UsageError(f"no forecast {method!r}", where="--forecast", fix=fix)
    if len(windows.window) == 0:
        raise UsageError("no window with traffic to forecast from", where="load", fix="give a longer trace")
    if not 0 <= half_life < math.inf:
        raise UsageError(f"half-life {half_life:g} must be ≥ 0 windows", where="--half-life")
    if method == "mean":
        return LoadForecast(tokens=windows.tokens.mean(axis=0), windows=windows, method=method)
    if method == "last":
        return LoadForecast(tokens=windows.tokens[-1].astype(np.float64), windows=windows, method=method)
    life = half_life or (FAST_HALF_LIFE if method == "ema-fast" else SLOW_HALF_LIFE)
    return LoadForecast(tokens=ema(windows, life)[-1], windows=windows, method=method, half_life=life)


def ema(windows: LoadWindows, half_life: float) -> FloatArray:
    """float64[W, L, E] moving average after each window: n ← β·n + (1-β)·count, β = 2^(-gap / half_life).

    The gap is the distance of window ids, so that windows without traffic age the estimate too.
    """
    out = np.empty(windows.tokens.shape)
    estimate = windows.tokens.mean(axis=0)
    previous = int(windows.window[0]) - 1
    for index, window in enumerate(windows.window.tolist()):
        keep = 0.5 ** ((window - previous) / half_life)
        estimate = keep * estimate + (1 - keep) * windows.tokens[index]
        out[index] = estimate
        previous = window
    return out
