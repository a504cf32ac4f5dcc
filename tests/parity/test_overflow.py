"""Overflow inside a step against its specification: the same experts, ranks and counts, to the last integer."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.kernels import numba_overflow, reference_overflow
from easybalance_sim.kernels.reference_overflow import DROP, LEAST, MOVED, NEXT, NONE, SHIFTED, STUCK


class Case(NamedTuple):
    """See `reference_overflow.reroute_overflow`."""

    experts: AnyArray
    ranks: AnyArray
    gates: AnyArray
    scores: AnyArray
    start: AnyArray
    replica_start: AnyArray
    replica_rank: AnyArray
    n_ranks: int
    cap: float
    rule: int

    def run(self, module: ModuleType) -> tuple[AnyArray, AnyArray, AnyArray]:
        out, ranks = np.full_like(self.experts, 99), np.full_like(self.experts, 99)
        done = np.full((len(self.start) - 1, self.experts.shape[1], 4), 99, np.int64)
        module.reroute_overflow(*self, out, ranks, done)
        return out, ranks, done


def case(
    seed: int, tokens: int, steps: int, rule: int, cap: float, *, extra: int = 0, known: float = 1.0,
    given_ranks: bool = False,
) -> Case:  # fmt: skip
    """Random choices of 2 of 8 experts in 2 layers on 4 ranks, skewed to low ids; `extra` replicas anywhere, of which
    one is given or they take turns."""
    rng = np.random.default_rng(seed)
    experts, layers, n_ranks = 8, 2, 4
    scores = rng.gamma(1.0, 1.0, (tokens, layers, experts)) / (1 + np.arange(experts))
    chosen = np.argsort(-scores, axis=2)[..., :2]
    gates = np.round(np.take_along_axis(scores, chosen, 2), 1)
    chosen[rng.random(chosen.shape) < 0.05] = NONE
    scores[rng.random(scores.shape) > known] = -np.inf
    homes = [[e // 2] for e in range(experts)]
    for _ in range(extra):
        e, rank = rng.integers(experts), int(rng.integers(n_ranks))
        if rank not in homes[e]:
            homes[e].append(rank)
    begins = np.cumsum([0, *map(len, homes)])
    flat = np.concatenate([np.array(home) for home in homes])
    ranks = np.full(chosen.shape, -1)
    if given_ranks:
        drawn = rng.integers(0, 99, chosen.shape)
        ranks = np.array([homes[e][n % len(homes[e])] for e, n in zip(chosen.flat, drawn.flat, strict=True)])
    return Case(
        experts=frozen(chosen, np.int32),
        ranks=frozen(ranks.reshape(chosen.shape), np.int32),
        gates=frozen(gates, np.float32),
        scores=frozen(np.round(scores, 1), np.float32),
        start=frozen(np.sort(np.concatenate([[0, tokens], rng.integers(0, tokens + 1, steps - 1)])), np.int64),
        replica_start=frozen(np.tile(begins, (layers, 1)), np.int32),
        replica_rank=frozen(np.tile(flat, (layers, 1)), np.int32),
        n_ranks=n_ranks,
        cap=cap,
        rule=rule,
    )


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 999), st.integers(0, 30), st.integers(1, 4), st.sampled_from([NEXT, LEAST, DROP]),
    st.sampled_from([1.0, 1.1, 1.5]), st.integers(0, 6), st.sampled_from([1.0, 0.5]), st.booleans(),
)  # fmt: skip
def test_overflow(
    seed: int, tokens: int, steps: int, rule: int, cap: float, extra: int, known: float, given_ranks: bool
) -> None:
    problem = case(seed, tokens, steps, rule, cap, extra=extra, known=known, given_ranks=given_ranks)
    for found, specified in zip(problem.run(numba_overflow), problem.run(reference_overflow), strict=True):
        np.testing.assert_array_equal(found, specified)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.integers(1, 30), st.sampled_from([NEXT, LEAST, DROP]), st.sampled_from([1.0, 1.2]))
def test_what_must_hold(seed: int, tokens: int, rule: int, cap: float) -> None:
    problem = case(seed, tokens, 3, rule, cap, extra=3)
    out, ranks, done = problem.run(numba_overflow)
    for step, (a, b) in enumerate(zip(problem.start[:-1], problem.start[1:], strict=True)):
        for layer in range(2):
            before, after, where = problem.experts[a:b, layer], out[a:b, layer], ranks[a:b, layer]
            counts = done[step, layer]
            assert (after == NONE).sum() - (before == NONE).sum() == (counts[2] if rule == DROP else 0)
            assert (after != before).sum() == counts[MOVED] + counts[2]
            np.testing.assert_array_equal(where == NONE, after == NONE)
            load = np.bincount(where[where != NONE], minlength=4)
            most = np.ceil(cap * (before != NONE).sum() / 4 - 1e-9)
            assert np.maximum(load - most, 0).sum() == counts[STUCK]
            homes = {
                e: problem.replica_rank[layer, problem.replica_start[layer, e] : problem.replica_start[layer, e + 1]]
                for e in range(8)
            }
            assert all(rank in homes[e] for e, rank in zip(after[where >= 0], where[where >= 0], strict=True))
            assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in after)


def test_an_overflow_of_two_by_hand() -> None:
    """Four tokens choose expert 0 of four, one expert on each rank: cap 1 lets each rank have one."""
    problem = Case(
        experts=frozen([[[0]], [[0]], [[0]], [[3]]], np.int32),
        ranks=frozen(np.full((4, 1, 1), -1), np.int32),
        gates=frozen([[[0.5]], [[0.2]], [[0.4]], [[0.9]]], np.float32),
        scores=frozen([[[9, 1, 2, 8]], [[9, 1, 2, 8]], [[9, 3, 2, 8]], [[9, 1, 2, 8]]], np.float32),
        start=frozen([0, 4], np.int64),
        replica_start=frozen([[0, 1, 2, 3, 4]], np.int32),
        replica_rank=frozen([[0, 1, 2, 3]], np.int32),
        n_ranks=4,
        cap=1.0,
        rule=NEXT,
    )
    out, _, done = problem.run(numba_overflow)
    # Token 1 has the lowest gate and takes its best expert with room, 2; token 2 then has only 1.
    assert out[:, 0, 0].tolist() == [0, 2, 1, 3]
    assert done[0, 0].tolist() == [2, 0, 0, 0]
    out, _, done = problem._replace(rule=DROP).run(numba_overflow)
    assert out[:, 0, 0].tolist() == [0, NONE, NONE, 3]
    assert done[0, 0].tolist() == [0, 0, 2, 0]


@pytest.mark.parametrize("module", [numba_overflow, reference_overflow])
def test_another_replica_comes_before_another_expert(module: ModuleType) -> None:
    problem = case(0, 1, 1, LEAST, 1.0)._replace(
        experts=frozen([[[0]], [[0]]], np.int32),
        ranks=frozen([[[0]], [[0]]], np.int32),
        gates=frozen(np.ones((2, 1, 1)), np.float32),
        scores=frozen(np.ones((2, 1, 2)), np.float32),
        start=frozen([0, 2], np.int64),
        replica_start=frozen([[0, 2, 3]], np.int32),
        replica_rank=frozen([[0, 1, 1]], np.int32),
        n_ranks=2,
    )
    out, ranks, done = problem.run(module)
    assert out[:, 0, 0].tolist() == [0, 0]
    assert ranks[:, 0, 0].tolist() == [1, 0]
    assert done[0, 0, SHIFTED] == 1
