"""How the two plans of a report are called on a page, and how heat maps of their load are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray

SIDES = ("baseline", "plan")


def side_names(report: Mapping[str, Any]) -> tuple[str, str]:
    """`baseline: contiguous`, `plan: window_search`."""
    first, second = (f"{side}: {report[side]['policy']}" for side in SIDES)
    return first, second


def layer_ids(report: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids of the MoE layers; their places where the report does not say them."""
    for name in ("maps", "load"):
        if report.get(name):
            return tuple(report[name]["layers"])
    return tuple(range(report["trace"]["layers"]))


def over_mean(tokens: Any) -> FloatArray:
    """float64[L, n] tokens over the mean of their layer, NaN in layers without any; rounded for the data of a page."""
    values = np.asarray(tokens, np.float64)
    mean = values.mean(axis=1, keepdims=True)
    found: FloatArray = np.round(np.divide(values, mean, out=np.full(values.shape, np.nan), where=mean > 0), 4)
    return found


def excess_removed(old: float, new: float) -> float | None:
    """Share of the excess of `old` over perfect balance that is gone with `new`; None where there is none."""
    return (old - new) / (old - 1) if old > 1 + 1e-9 else None


def percent(share: float) -> str:
    """53 %; one digit more below 10."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"
