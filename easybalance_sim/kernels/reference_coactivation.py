"""The co-activation kernel as naive loops: the specification of `numba_coactivation`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def coactivation(experts: npt.NDArray[Any], out: npt.NDArray[np.int64]) -> None:
    """Add how often two experts were chosen by one token: experts ids [T, L, K], distinct per token and layer; out
    int64[L, E, E], symmetric, on the diagonal how often each was chosen."""
    for token in experts:
        for layer, chosen in enumerate(token.tolist()):
            for first in chosen:
                for second in chosen:
                    out[layer, first, second] += 1
