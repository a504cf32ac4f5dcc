"""How the two plans of a report are called on a page, and how heat maps of their load are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.report.words import change

HARDLY = 0.0005
"""Of a figure: less is no change where one digit behind the point is shown."""
EVEN = 0.0005
"""Of an excess over perfect balance: less is none."""
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
    return (old - new) / (old - 1) if old > 1 + EVEN else None


def nothing_to_even(report: Mapping[str, Any]) -> str:
    """Why no plan can be more even or less, in a sentence; empty where ranks are uneven under either plan."""
    if report["cluster"]["ranks"] == 1:
        return "One rank takes all of it: there is nothing to even out."
    if all(report[side]["rank_imbalance"]["max"] <= 1 + EVEN for side in SIDES):
        return "Ranks are even under both plans: there is nothing to even out."
    return ""


def takes(share: float, of: str) -> str:
    """`takes 53 % off the excess`, `adds 5 % to the excess`."""
    return f"takes {percent(share)} off {of}" if share >= 0 else f"adds {percent(-share)} to {of}"


def in_brackets(old: float, new: float) -> str:
    """` (+3.0 %)`; nothing for what cannot be seen so."""
    seen = bool(old) and abs(new / old - 1) >= HARDLY
    return f" ({change(old, new)})" if seen else ""


def percent(share: float) -> str:
    """53 %; one digit more below 10."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"
