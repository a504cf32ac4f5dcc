"""Steps put together from routed requests: their tokens for a replay, and their loads by the step model's sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray, frozen, sealed
from easybalance_sim.simulate.serving.routed import Routed
from easybalance_sim.trace.schema import DECODE, PREFILL, TokenBatch


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """What M pieces of requests are in W steps, in order of step.

    step: int64[M] 0-based · row: int64[M] of the routed requests · first: int64[M] place in the row where the piece
    begins, from its end a row begins anew · count: int64[M] ≥ 1 tokens · data_rank: int64[M] where the request is.
    """

    step: IntArray
    row: IntArray
    first: IntArray
    count: IntArray
    data_rank: IntArray

    def __post_init__(self) -> None:
        for name in ("step", "row", "first", "count", "data_rank"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int64))

    @property
    def steps(self) -> int:
        """W."""
        return int(self.step[-1]) + 1


def tokens_of(routed: Routed, pieces: Pieces, ranks: int, data_ranks: int) -> TokenBatch:
    """The pieces as a trace of whole steps.

    A data-parallel rank of several ranks deals its tokens to them in turn: after attention each holds a share.
    """
    of = np.repeat(np.arange(len(pieces.step)), pieces.count)
    inside = np.arange(len(of)) - np.repeat(np.cumsum(pieces.count) - pieces.count, pieces.count)
    at = (pieces.first[of] + inside) % routed.tokens[pieces.row[of]]
    own = ranks // data_ranks
    source = pieces.data_rank[of] * own + (of + inside) % own
    return TokenBatch(
        step=frozen(pieces.step[of], np.int32),
        request=frozen(of, np.int64),
        position=frozen(at, np.int32),
        phase=frozen(np.where(pieces.row[of] % 2, DECODE, PREFILL), np.uint8),
        source_rank=frozen(source, np.int16),
        workload=frozen(routed.workload[pieces.row[of] // 2], np.int16),
        experts=sealed(routed.experts[routed.first[pieces.row[of]] + at]),
    )


def loads(pieces: Pieces, by_row: AnyArray) -> AnyArray:
    """float32[W, L, R]: sums over the tokens of each step of by_row [Q, L, R]."""
    rows = len(by_row)
    counted = np.bincount(pieces.step * rows + pieces.row, pieces.count, pieces.steps * rows)
    summed: AnyArray = counted.reshape(pieces.steps, rows).astype(np.float32) @ by_row.reshape(rows, -1)
    return summed.reshape(pieces.steps, *by_row.shape[1:])


def tokens_per_data_rank(pieces: Pieces, data_ranks: int) -> IntArray:
    """int64[W, D] tokens of each data-parallel rank."""
    at = pieces.step * data_ranks + pieces.data_rank
    counted = np.bincount(at, pieces.count, pieces.steps * data_ranks)
    return counted.reshape(pieces.steps, data_ranks).astype(np.int64)
