"""Counting on the GPU; specification in `reference_counts`, kernel in `count_windows.cu`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import cupy
import numpy as np
import numpy.typing as npt

from easybalance_sim.kernels import numba_cpu
from easybalance_sim.kernels.cupy_tiles import (
    SHARED_BYTES,
    Lane,
    cut_into,
    in_tiles,
    ints,
    kernel,
    tile,
    tokens_per_tile,
)

AnyArray = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]

TOKENS_PER_PIECE = 512
THREADS = 256


def count_windows(experts: AnyArray, window: Ints, out: IntArray) -> None:
    """See `reference_counts.count_windows`."""
    _, layers, top_k = experts.shape
    n_experts = out.shape[2]
    part = min(layers, max(1, 64 // (top_k * experts.itemsize)), SHARED_BYTES // (4 * n_experts))
    pieces = _pieces(window)
    if part < 1 or len(pieces.window) == 0:
        numba_cpu.count_windows(experts, window, out)
        return

    def launch(lane: Lane, first: int, last: int) -> Callable[[], None]:
        start, stop = int(pieces.first[first]), int(pieces.last[last - 1])
        low, high = int(pieces.window[first:last].min()), int(pieces.window[first:last].max()) + 1
        counted = cupy.zeros((high - low, layers, n_experts), np.uint64)
        ids = tile(lane, experts, start, stop)
        given = (pieces.first[first:last] - start, pieces.last[first:last] - start, pieces.window[first:last] - low)
        begin, end, to = (cupy.asarray(each) for each in given)
        kernel("count_windows", f"count_windows_{experts.dtype.name}")(
            ((last - first) * -(-layers // part),), (THREADS,),
            (ids, begin, end, to, counted, *ints(layers, top_k, n_experts, part)),
            shared_mem=4 * part * n_experts,
        )  # fmt: skip

        def fetch() -> None:
            lane.stream.synchronize()
            out[low:high] += counted.get(stream=lane.stream).view(np.int64)

        return fetch

    def on_cpu(first: int, last: int) -> None:
        tokens = slice(int(pieces.first[first]), int(pieces.last[last - 1]))
        numba_cpu.count_windows(experts[tokens], window[tokens], out)

    edges = np.append(pieces.first, pieces.last[-1])
    in_tiles(edges, tokens_per_tile(experts), launch, on_cpu)


class _Pieces(NamedTuple):
    """Tokens `first` to `last` that count for one window, few enough for a block."""

    first: IntArray
    last: IntArray
    window: Ints


def _pieces(window: Ints) -> _Pieces:
    edges = np.flatnonzero(np.diff(window, prepend=-2, append=-2))
    starts, stops = edges[:-1], edges[1:]
    first, last, run = cut_into(starts, stops, TOKENS_PER_PIECE)
    to = window[starts[run]]
    return _Pieces(first[to >= 0], last[to >= 0], to[to >= 0])
