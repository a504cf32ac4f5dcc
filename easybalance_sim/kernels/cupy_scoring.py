"""Scoring of plans on the GPU; specification in `reference_scoring`, kernel in `score_plans.cu`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels import numba_cpu
from easybalance_sim.kernels.cupy_tiles import SHARED_BYTES, TILE_BYTES, Lane, in_tiles, ints, kernel

IntArray = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]

THREADS = 256


def score_plans(
    expert_of_slot: Int32Array, slot_start: Int32Array, tokens: IntArray, pace: FloatArray, out: FloatArray
) -> None:
    """See `reference_scoring.score_plans`."""
    plans, layers, slots = expert_of_slot.shape
    windows, _, experts = tokens.shape
    shared = 8 * slots + 4 * experts
    on_one: Any = numba_cpu.score_plans
    if shared > SHARED_BYTES or out.size == 0:
        on_one(expert_of_slot, slot_start, tokens, pace, out)
        return
    # Neighbouring threads take neighbouring windows. Whole numbers of tokens are exact in float64, so are their sums.
    rows = np.ascontiguousarray(tokens.transpose(1, 2, 0), np.float64)
    totals = np.ascontiguousarray(tokens.sum(axis=2).T, np.float64)

    def launch(lane: Lane, first: int, last: int) -> Callable[[], None]:
        scores = cupy.empty((last - first, layers, windows), np.float64)
        given = (expert_of_slot[first:last], slot_start, rows, totals, pace)
        kernel("score_plans", "score_plans")(
            ((last - first) * layers,), (min(THREADS, -(-windows // 32) * 32),),
            (
                *(cupy.asarray(each) for each in given), scores,
                *ints(last - first, layers, slots, len(pace), experts, windows),
            ),
            shared_mem=shared,
        )  # fmt: skip

        def fetch() -> None:
            lane.stream.synchronize()
            scores.get(stream=lane.stream, out=out[first:last])

        return fetch

    def on_cpu(first: int, last: int) -> None:
        on_one(expert_of_slot[first:last], slot_start, tokens, pace, out[first:last])

    in_tiles(np.arange(plans + 1), max(1, TILE_BYTES // out[0].nbytes), launch, on_cpu)
