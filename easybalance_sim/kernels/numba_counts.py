"""Counting and checking kernels, compiled; specification in `reference_counts`."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


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


@njit(cache=True, nogil=True, parallel=True)
def count_windows(experts, window, out):  # type: ignore[no-untyped-def]
    tokens, layers, top_k = experts.shape
    tile = max(1, min(layers, 64 // top_k))
    tiles = (layers + tile - 1) // tile
    for part in prange(tiles):
        first = part * tile
        last = min(layers, first + tile)
        for row in range(tokens):
            w = window[row]
            if w < 0:
                continue
            for layer in range(first, last):
                for k in range(top_k):
                    out[w, layer, experts[row, layer, k]] += 1


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
