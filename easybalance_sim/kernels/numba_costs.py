"""Expert-time kernel, compiled; specification in `reference_costs`.

The powers of the smooth maximum would cost more than everything else. They depend on the numbers of active slots and of
tiles alone, of which there are few in any stretch of traffic, so the last value for each is kept.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels.bare import bare_njit

Int16Array = npt.NDArray[np.int16]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]

KEPT = 4096
"""Values that are kept, a power of two."""


@bare_njit()
def _smooth_max(a: float, b: float, q: float) -> float:
    high, low = max(a, b), min(a, b)
    if q == 1.0 or low <= 0.0:
        return high + low
    return high * math.exp(math.log1p(math.exp(q * math.log(low / high))) / q)


@bare_njit()
def _fill(slot_tokens, distinct, slot_start, pace, params, shift, seconds, active, key, value):  # type: ignore[no-untyped-def]
    """pace: float64[R] 1 / speed · key, value: [KEPT] room to work in, keys -1."""
    steps, layers, _ = slot_tokens.shape
    ranks = len(pace)
    base_s, weight_s, tile_s, q, pair_s, token_s = params[0], params[1], params[2], params[3], params[5], params[6]
    # Blocks are powers of two: a shift keeps the slot loop free of divisions.
    mask = np.int32((1 << shift) - 1)
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
                wanted = (slots << 40) + tiles
                at = (tiles + slots * 257) & (KEPT - 1)
                if key[at] != wanted:
                    key[at], value[at] = wanted, _smooth_max(slots * weight_s, tiles * tile_s, q)
                rows_s = base_s + pairs * pair_s + distinct[step, layer, rank] * token_s
                worst = max(worst, (rows_s + value[at]) * pace[rank])
            seconds[step, layer] = worst


def expert_seconds(
    slot_tokens: Int32Array, distinct: Int32Array, slot_start: Int32Array, speed: FloatArray, params: FloatArray
) -> tuple[FloatArray, Int16Array]:
    """The compiled loop, which allocates nothing."""
    steps, layers, _ = slot_tokens.shape
    seconds, active = np.zeros((steps, layers)), np.zeros((steps, layers, len(speed)), np.int16)
    key, value = np.full(KEPT, -1, np.int64), np.empty(KEPT)
    shift = np.int32(round(math.log2(params[4])))
    _fill(slot_tokens, distinct, slot_start, 1.0 / speed, params, shift, seconds, active, key, value)
    return seconds, active
