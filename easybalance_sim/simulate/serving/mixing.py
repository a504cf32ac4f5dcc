"""Steps put together from routed requests: their tokens for a replay, and their loads by the step model's sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def answers(
    routed: Routed, requests: IntArray, steps: int, tokens: int, data_ranks: int, rng: np.random.Generator
) -> Pieces:
    """Steps of one answer token each of `tokens` of the requests per data-parallel rank, drawn at random."""
    row = 2 * rng.choice(requests, steps * tokens * data_ranks) + 1
    return _pieces(routed, row, 1, steps, data_ranks, rng)


def prompts(
    routed: Routed, requests: IntArray, steps: int, run: int, data_ranks: int, rng: np.random.Generator
) -> Pieces:
    """Steps of `run` prompt tokens of one of the requests per data-parallel rank, drawn at random."""
    row = 2 * rng.choice(requests, steps * data_ranks)
    return _pieces(routed, row, run, steps, data_ranks, rng)


def one_prompt(
    routed: Routed, requests: IntArray, steps: int, run: int, tokens: int, data_ranks: int, rng: np.random.Generator
) -> Pieces:
    """`answers`, and on one data-parallel rank, another in each step, `run` prompt tokens of one request."""
    home = np.linspace(0, data_ranks - 1, steps).astype(np.int64)
    prompt = replace(prompts(routed, requests, steps, run, 1, rng), data_rank=home)
    others = answers(routed, requests, steps, tokens, data_ranks, rng)
    order = np.argsort(np.concatenate([prompt.step, others.step]), kind="stable")
    names = ("step", "row", "first", "count", "data_rank")
    return Pieces(**{name: np.concatenate([getattr(prompt, name), getattr(others, name)])[order] for name in names})


def _pieces(routed: Routed, row: IntArray, count: int, steps: int, data_ranks: int, rng: np.random.Generator) -> Pieces:
    return Pieces(
        step=np.repeat(np.arange(steps), len(row) // steps),
        row=row,
        first=rng.integers(0, routed.tokens[row]),
        count=np.full(len(row), count),
        data_rank=np.tile(np.arange(data_ranks), len(row) // data_ranks),
    )


def tokens_of(routed: Routed, pieces: Pieces, ranks: int, data_ranks: int) -> TokenBatch:
    """The pieces as a trace of whole steps.

    A data-parallel rank of several ranks deals its tokens to them in turn: after attention each holds a share.
    """
    of = np.repeat(np.arange(len(pieces.step)), pieces.count)
    inside = np.arange(len(of)) - np.repeat(np.cumsum(pieces.count) - pieces.count, pieces.count)
    at = (pieces.first[of] + inside) % routed.tokens[pieces.row[of]]
    own = ranks // data_ranks
    source = pieces.data_rank[of] * own + _turn(pieces.data_rank[of]) % own
    return TokenBatch(
        step=frozen(pieces.step[of], np.int32),
        request=frozen(of, np.int64),
        position=frozen(at, np.int32),
        phase=frozen(np.where(pieces.row[of] % 2, DECODE, PREFILL), np.uint8),
        source_rank=frozen(source, np.int16),
        workload=frozen(routed.workload[pieces.row[of] // 2], np.int16),
        experts=sealed(routed.experts[routed.first[pieces.row[of]] + at]),
    )


def _turn(group: IntArray) -> IntArray:
    """int64[T]: how many of the same group came before."""
    order = np.argsort(group, kind="stable")
    members = np.bincount(group)
    turn = np.empty(len(group), np.int64)
    turn[order] = np.arange(len(group)) - np.repeat(np.cumsum(members) - members, members)
    return turn


def loads(pieces: Pieces, by_row: AnyArray) -> AnyArray:
    """float32[W, L, R]: sums over the tokens of each step of by_row [Q, L, R]."""
    used, at = np.unique(pieces.row, return_inverse=True)
    rows = len(used)
    counted = np.bincount(pieces.step * rows + at, pieces.count, pieces.steps * rows)
    summed: AnyArray = counted.reshape(pieces.steps, rows).astype(np.float32) @ by_row[used].reshape(rows, -1)
    return summed.reshape(pieces.steps, *by_row.shape[1:])


def tokens_per_data_rank(pieces: Pieces, data_ranks: int) -> IntArray:
    """int64[W, D] tokens of each data-parallel rank."""
    at = pieces.step * data_ranks + pieces.data_rank
    counted = np.bincount(at, pieces.count, pieces.steps * data_ranks)
    return counted.reshape(pieces.steps, data_ranks).astype(np.int64)
