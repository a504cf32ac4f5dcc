"""Counting and checking kernels, compiled; specification in `reference_counts`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.threads import cores, on_threads

AnyArray = npt.NDArray[Any]


@njit(cache=True, nogil=True)
def check_ids(experts, n_experts):  # type: ignore[no-untyped-def]
    tokens, layers, top_k = experts.shape
    last = np.full(n_experts, -1, np.int64)
    for row in range(tokens):
        for layer in range(layers):
            mark = row * layers + layer
            for k in range(top_k):
                expert = experts[row, layer, k]
                if expert >= n_experts:
                    return row, layer, 1
                if last[expert] == mark:
                    return row, layer, 2
                last[expert] = mark
    return -1, -1, 0


@bare_njit()
def _count_layers(experts, window, first, last, out):  # type: ignore[no-untyped-def]
    tokens, _, top_k = experts.shape
    for row in range(tokens):
        w = window[row]
        if w < 0:
            continue
        for layer in range(first, last):
            for k in range(top_k):
                out[w, layer, experts[row, layer, k]] += 1


def count_windows(experts: AnyArray, window: AnyArray, out: AnyArray) -> None:
    """Layers shared by threads, at least a cache line of ids each; few shares, as each passes over the windows."""
    _, layers, top_k = experts.shape
    tile = max(1, 64 // top_k, -(-layers // cores()))

    def count(part: int) -> None:
        _count_layers(experts, window, part * tile, min(layers, (part + 1) * tile), out)

    for _ in on_threads(count, -(-layers // tile)):
        pass


@njit(cache=True, nogil=True)
def local_rows(step, source, ranks):  # type: ignore[no-untyped-def]
    out = np.empty(len(step), np.int32)
    seen = np.zeros(ranks, np.int32)
    for row in range(len(step)):
        if row > 0 and step[row] != step[row - 1]:
            seen[:] = 0
        out[row] = seen[source[row]]
        seen[source[row]] += 1
    return out
