"""Expert ids as recorders leave them: rows that were never filled, and ids that no model has."""

from __future__ import annotations

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, BoolArray, IntArray, frozen
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import TraceMeta


def blank_rows(ids: AnyArray) -> BoolArray:
    """bool[T, L] where a top-k of [T, L, K] ids was never filled: -1 throughout, or for K ≥ 2 zeros.

    Buffers of engines begin as zeros, and no top-k holds an expert twice; with K = 1 a zero is expert 0.
    """
    filler: BoolArray = (ids == -1).all(axis=2)
    return filler | (ids == 0).all(axis=2) if ids.shape[2] > 1 else filler


def checked_ids(ids: AnyArray, meta: TraceMeta, where: str, position: IntArray | None = None) -> AnyArray:
    """[T, L, K] integers in the dtype of the trace. position: int64[T] what messages call the tokens, 0.. unless said.

    Raises `TraceError` with token and layer for an id that is not in 0..E-1, and for an expert twice in one top-k.
    """
    bad = np.argwhere((ids < 0) | (ids >= meta.experts))
    if len(bad):
        token, layer, place = (int(n) for n in bad[0])
        raise TraceError(
            f"{_place(token, layer, meta, position)}: id {ids[token, layer, place]} is not in 0..{meta.experts - 1}",
            where=where,
            fix="correct --experts or --model; slots of a plan are not experts",
        )
    narrow = frozen(ids, meta.dtype)
    token, layer, kind = kernels.load().check_ids(narrow, meta.experts)
    if kind:
        chosen = narrow[token, layer].tolist()
        expert = next(one for one in chosen if chosen.count(one) > 1)
        raise TraceError(
            f"{_place(token, layer, meta, position)}: expert {expert} stands twice in one top-{meta.top_k}",
            where=where,
            fix="correct --top-k, --layers or --model",
        )
    return narrow


def _place(token: int, layer: int, meta: TraceMeta, position: IntArray | None) -> str:
    return f"token {token if position is None else int(position[token])}, layer {meta.layers[layer]}"
