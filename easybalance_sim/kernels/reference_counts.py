"""Counting and checking kernels as naive loops: the specification of `numba_counts`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IdArray = npt.NDArray[Any]


def check_ids(experts: IdArray, n_experts: int) -> tuple[int, int, int]:
    """First fault in experts [T, L, K]: (row, layer row, kind), kind 1 = id ≥ E, 2 = expert twice in one top-k.

    (-1, -1, 0) when there is none. Rows are searched in order, layers within a row.
    """
    for row, token in enumerate(experts):
        for layer, chosen in enumerate(token):
            seen = set()
            for expert in chosen.tolist():
                if expert >= n_experts:
                    return row, layer, 1
                if expert in seen:
                    return row, layer, 2
                seen.add(expert)
    return -1, -1, 0


def count_windows(experts: IdArray, window: npt.NDArray[np.int32], out: npt.NDArray[np.int64]) -> None:
    """Add the assignments of experts [T, L, K] to out int64[W, L, E]; window int32[T] is a row of out, -1 = skip."""
    for row, token in enumerate(experts):
        if window[row] < 0:
            continue
        for layer, chosen in enumerate(token):
            for expert in chosen.tolist():
                out[window[row], layer, expert] += 1


def local_rows(step: npt.NDArray[np.int32], source: npt.NDArray[np.int16], ranks: int) -> npt.NDArray[np.int32]:
    """int32[T] row of each token in the batch of its (step, source rank), in trace order; step must not go back."""
    seen: dict[tuple[int, int], int] = {}
    out = np.zeros(len(step), np.int32)
    for row, key in enumerate(zip(step.tolist(), source.tolist(), strict=True)):
        out[row] = seen.get(key, 0)
        seen[key] = out[row] + 1
    return out
