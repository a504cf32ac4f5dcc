"""Expert time of a layer, naive loops: the specification of `numba_costs`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Int16Array = npt.NDArray[np.int16]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


def expert_seconds(
    slot_tokens: Int32Array, distinct: Int32Array, slot_start: Int32Array, speed: FloatArray, params: FloatArray
) -> tuple[FloatArray, Int16Array]:
    """Seconds of the slowest rank and the active slots of every rank.

    slot_tokens: int32[W, L, P] assignments that a slot computes in a step · distinct: int32[W, L, R] distinct tokens
    that arrive at a rank · slot_start: int32[R+1] · speed: float64[R], time is divided by it · params: float64[7] =
    base s, seconds to read the weights of one slot, seconds of one tile, q, tile height in tokens (a power of two),
    seconds per assignment, seconds per distinct token.
    Returns seconds float64[W, L] (0 where no rank has tokens) and active int16[W, L, R].
    """
    steps, layers, _ = slot_tokens.shape
    ranks = len(speed)
    seconds = np.zeros((steps, layers), np.float64)
    active = np.zeros((steps, layers, ranks), np.int16)
    for step in range(steps):
        for layer in range(layers):
            for rank in range(ranks):
                counts = [int(m) for m in slot_tokens[step, layer, slot_start[rank] : slot_start[rank + 1]]]
                active[step, layer, rank] = sum(m > 0 for m in counts)
                time = rank_seconds(counts, int(distinct[step, layer, rank]), params) / float(speed[rank])
                seconds[step, layer] = max(seconds[step, layer], time)
    return seconds, active


def rank_seconds(counts: list[int], distinct: int, params: FloatArray) -> float:
    """Seconds of one rank that computes `counts` assignments per slot; 0 when it is idle."""
    base_s, weight_s, tile_s, q, block, pair_s, token_s = (float(p) for p in params)
    if sum(counts) == 0:
        return 0.0
    weights = weight_s * sum(m > 0 for m in counts)
    compute = tile_s * sum(math.ceil(m / block) for m in counts)
    high, low = max(weights, compute), min(weights, compute)
    both = high * (1.0 + (low / high) ** q) ** (1.0 / q)
    return float(base_s + both + pair_s * sum(counts) + token_s * distinct)
