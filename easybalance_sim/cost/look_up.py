"""Times between the rows of a measured curve.

Between two rows time is linear; below the first it is flat; above the last it follows the least-squares slope of the
last three rows (never downwards), up to 4 times the last. Of the schemes that were compared on tables of aiconfigurator
(095f58a51) with every second row held out, none does better by more than 0.3 points, and beyond the table this slope is
the best.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray
from easybalance_sim.errors import ProfileError

FARTHEST_EXTRAPOLATION = 4


def looked_up_us(known: Sequence[float], us: Sequence[float], at: AnyArray, *, what: str, where: str) -> FloatArray:
    """µs at each value of `at`, any shape; 0 at 0.

    known: float[N] strictly increasing · us: float[N] · what: `at` in words, for the error · where: the table's source.
    Raises `ProfileError` beyond 4 times the last row.
    """
    x, most = np.array(known), float(np.max(at, initial=0))
    if most > FARTHEST_EXTRAPOLATION * x[-1]:
        raise ProfileError(
            f"{most:g} {what} are more than {FARTHEST_EXTRAPOLATION} times the table's largest ({x[-1]:g})",
            where=where,
            fix="measure larger ones",
        )
    inside = np.interp(at, x, us)
    beyond = tail_slope(known, us) * np.maximum(np.asarray(at) - x[-1], 0.0)
    return np.where(np.asarray(at) > 0, inside + beyond, 0.0)


def tail_slope(known: Sequence[float], us: Sequence[float]) -> float:
    """µs per unit beyond the last row: least squares of the last three rows, at least 0."""
    tail = slice(-min(3, len(us)), None)
    return max(0.0, float(np.polyfit(known[tail], us[tail], 1)[0]))
