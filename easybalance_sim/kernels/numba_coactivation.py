"""The co-activation kernel, compiled; specification in `reference_coactivation`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels.bare import bare_njit
from easybalance_sim.kernels.threads import on_threads

AnyArray = npt.NDArray[Any]
U = np.uint64


@bare_njit()
def _count_pairs(experts, layer, table):  # type: ignore[no-untyped-def]
    """Adds to table[E, E] each pair of columns once, wherever that lies: sorting a pair costs more than it saves."""
    tokens, _, top_k = experts.shape
    for row in range(tokens):
        ids = experts[U(row), U(layer)]
        for k in range(top_k):
            first = U(ids[U(k)])
            for other in range(k, top_k):
                table[first, U(ids[U(other)])] += 1


def coactivation(experts: AnyArray, out: npt.NDArray[np.int64]) -> None:
    """Layers on threads, each with a table of half-width counts, which fits the cache better."""
    layers, n_experts, _ = out.shape

    def count(layer: int) -> None:
        table = np.zeros((n_experts, n_experts), np.int32)
        _count_pairs(experts, layer, table)
        out[layer] += table
        np.fill_diagonal(table, 0)
        out[layer] += table.T

    for _ in on_threads(count, layers):
        pass
