"""How a request's tokens are spread over the ranks, naive loops: the specification of `numba_rank_moments`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


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
    """Sums over the tokens of each row of the assignments that a token sends to a rank, and of their squares.

    experts [T, L, K] · start: int64[Q+1] first token of each row · replica_start: int32[L, E+1] · replica_rank:
    int32[L, P] and replica_share: float64[L, P] rank and share of each replica, sorted by expert · by_chance: a token
    goes to one replica at random, so its squares have the variance of that choice; else the shares are taken as they
    are. Adds to total, square: float64[Q, L, R].
    """
    rows, layers, ranks = total.shape
    for row in range(rows):
        for token in range(int(start[row]), int(start[row + 1])):
            for layer in range(layers):
                sent, chance = np.zeros(ranks), np.zeros(ranks)
                for expert in experts[token, layer].tolist():
                    for at in range(int(replica_start[layer, expert]), int(replica_start[layer, expert + 1])):
                        share = float(replica_share[layer, at])
                        sent[replica_rank[layer, at]] += share
                        chance[replica_rank[layer, at]] += share * (1.0 - share) * by_chance
                total[row, layer] += sent
                square[row, layer] += sent * sent + chance
