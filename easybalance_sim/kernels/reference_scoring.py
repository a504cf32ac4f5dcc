"""Rank imbalance of many plans as naive loops; the specification of `numba_scoring`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


def score_plans(
    expert_of_slot: Int32Array, slot_start: Int32Array, tokens: IntArray, pace: FloatArray, out: FloatArray
) -> None:
    """Imbalance of C plans on W windows, every replica taking an even share of its expert's tokens.

    In: expert_of_slot int32[C, L, P], every expert with tokens in some slot · slot_start int32[R+1] first slot of each
    rank, then P · tokens int64[W, L, E] · pace float64[R] speed of all ranks together over that of each.
    Out: out float64[C, L, W] the largest load · pace of a rank over the tokens of all ranks; NaN without tokens.
    """
    for c, plan in enumerate(expert_of_slot):
        for layer, slots in enumerate(plan.tolist()):
            for w in range(len(tokens)):
                share = [tokens[w, layer, e] / slots.count(e) for e in slots]
                loads = [sum(share[a:b]) for a, b in pairwise(slot_start.tolist())]
                total = tokens[w, layer].sum()
                worst = max(load * p for load, p in zip(loads, pace, strict=True))
                out[c, layer, w] = worst / total if total > 0 else np.nan
