"""Expert-time kernel, compiled; specification in `reference_costs`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

Int16Array = npt.NDArray[np.int16]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


@njit(cache=True, nogil=True)
def _smooth_max(high: float, low: float, q: float) -> float:
    if q == 1.0 or low <= 0.0:
        return high + low
    return high * math.exp(math.log1p(math.exp(q * math.log(low / high))) / q)


@njit(cache=True, nogil=True)
def expert_seconds(
    slot_tokens: Int32Array, distinct: Int32Array, slot_start: Int32Array, speed: FloatArray, params: FloatArray
) -> tuple[FloatArray, Int16Array]:
    steps, layers, _ = slot_tokens.shape
    ranks = len(speed)
    seconds = np.zeros((steps, layers), np.float64)
    active = np.zeros((steps, layers, ranks), np.int16)
    base_s, weight_s, tile_s, q, pair_s, token_s = params[0], params[1], params[2], params[3], params[5], params[6]
    # Blocks are powers of two: a shift keeps the slot loop free of divisions, so that it vectorises.
    shift = np.int32(round(math.log2(params[4])))
    mask = np.int32((1 << shift) - 1)
    chord = 2.0 ** (1.0 / q) - 1.0
    for step in range(steps):
        for layer in range(layers):
            worst = 0.0
            for rank in range(ranks):
                slots, tiles, pairs = 0, 0, 0
                for slot in range(slot_start[rank], slot_start[rank + 1]):
                    tokens = slot_tokens[step, layer, slot]
                    slots += tokens > 0
                    tiles += (tokens + mask) >> shift
                    pairs += tokens
                active[step, layer, rank] = slots
                if pairs == 0:
                    continue
                rows_s = base_s + pairs * pair_s + distinct[step, layer, rank] * token_s
                high, low = max(slots * weight_s, tiles * tile_s), min(slots * weight_s, tiles * tile_s)
                # The smooth maximum is convex, so its chord is an upper bound: most ranks are out without any power.
                if rows_s + high + low * chord <= worst * speed[rank]:
                    continue
                worst = max(worst, (rows_s + _smooth_max(high, low, q)) / speed[rank])
            seconds[step, layer] = worst
    return seconds, active
