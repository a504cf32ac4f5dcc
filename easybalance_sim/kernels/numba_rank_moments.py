"""How a request's tokens are spread over the ranks, compiled; specification in `reference_rank_moments`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels.bare import bare_njit

AnyArray = npt.NDArray[Any]
Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@bare_njit(error_model="numpy")
def _add(experts, start, first, rank, share, by_chance, total, square, sent):  # type: ignore[no-untyped-def]
    """first: int32[L, E+1] · sent: zeros [R], room to work in."""
    rows, layers, _ = total.shape
    for row in range(rows):
        for token in range(start[row], start[row + 1]):
            for layer in range(layers):
                ids = experts[token, layer]
                added, squares = total[row, layer], square[row, layer]
                for expert in ids:
                    for at in range(first[layer, expert], first[layer, np.int64(expert) + 1]):
                        part = share[layer, at]
                        # (sent + part)² - sent²: so the squares need no second pass over the ranks.
                        to = rank[layer, at]
                        squares[to] += part * (2.0 * sent[to] + part)
                        if by_chance:
                            squares[to] += part * (1.0 - part)
                        sent[to] += part
                for expert in ids:
                    for at in range(first[layer, expert], first[layer, np.int64(expert) + 1]):
                        to = rank[layer, at]
                        added[to] += sent[to]
                        sent[to] = 0.0


def rank_moments(
    experts: AnyArray,
    start: IntArray,
    replica_start: Int32Array,
    replica_rank: Int32Array,
    replica_share: FloatArray,
    by_chance: bool,
    total: FloatArray,
    square: FloatArray,
) -> None:
    """The compiled loop, which allocates nothing."""
    sent = np.zeros(total.shape[2])
    _add(
        experts, start, replica_start, replica_rank, replica_share, by_chance, total, square, sent
    )  # fmt: skip
