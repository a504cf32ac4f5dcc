"""Samples of tokens: size, fairness, independence of batch borders, source nodes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from easybalance_sim.arrays import IntArray
from easybalance_sim.errors import EbsimError
from easybalance_sim.load.sampling import TokenSample, draw_tokens, sample_of
from easybalance_sim.trace.schema import TokenBatch
from tests.replay_cases import batch_of

NODES: IntArray = np.array([0, 0, 1, 1])


def batch(tokens: int) -> TokenBatch:
    """Token number t chose experts t and t + 1 (modulo 200) and came from rank t modulo 4."""
    number = np.arange(tokens)
    experts = np.stack([number % 200, (number + 1) % 200], axis=1)[:, None].astype(np.uint8)
    return batch_of(np.zeros(tokens, np.int32), (number % 4).astype(np.int16), experts)


def parts(whole: TokenBatch, *cuts: int) -> list[TokenBatch]:
    ends = [0, *cuts, whole.tokens]
    return [replace(whole.select(slice(a, b)), first_row=a) for a, b in pairwise(ends)]


def sample_tokens(batches: list[TokenBatch], limit: int, seed: int, parts: int = 1) -> TokenSample | None:
    """The sample of a trace that was cut into parts between batches."""
    cut = np.array_split(np.arange(len(batches)), parts)
    draws = [draw_tokens([batches[one] for one in part], lambda _: None, limit, seed) for part in cut]
    return sample_of(draws, limit, NODES)


def test_a_short_trace_is_taken_whole_and_in_order() -> None:
    sample = sample_tokens(parts(batch(30), 7, 7, 20), 100, 0)
    assert sample is not None
    assert sample.tokens == 30
    assert sample.experts[:, 0, 0].tolist() == list(range(30))
    assert sample.source_node.tolist() == [(n % 4) // 2 for n in range(30)]


@pytest.mark.parametrize("cuts", [(), (1, 2, 3), (50, 120), (149,)])
def test_batches_do_not_matter(cuts: tuple[int, ...]) -> None:
    whole, cut = (sample_tokens(each, 40, 5) for each in ([batch(150)], parts(batch(150), *cuts)))
    assert whole is not None
    assert cut is not None
    assert whole.tokens == 40
    assert whole.experts.tolist() == cut.experts.tolist()
    assert whole.source_node.tolist() == cut.source_node.tolist()


@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_parts_do_not_matter(pieces: int) -> None:
    whole = sample_tokens([batch(150)], 40, 5)
    cut = sample_tokens(parts(batch(150), 3, 40, 41, 120), 40, 5, pieces)
    assert whole is not None and cut is not None
    assert whole.experts.tolist() == cut.experts.tolist()
    assert whole.source_node.tolist() == cut.source_node.tolist()


def test_only_tokens_that_count_are_drawn() -> None:
    draw = draw_tokens(parts(batch(90), 31), lambda one: one.source_rank == 2, 500, 1)
    assert draw is not None and draw.experts[:, 0, 0].tolist() == list(range(2, 90, 4))


def test_early_and_late_tokens_are_as_likely() -> None:
    chosen = np.zeros(100)
    for seed in range(200):
        sample = sample_tokens(parts(batch(100), 10, 60), 20, seed)
        assert sample is not None
        chosen[sample.experts[:, 0, 0]] += 1
    assert abs(chosen[:50].mean() - 40) < 3
    assert chosen.min() > 15
    assert chosen.max() < 70


def test_unknown_ranks_and_ranks_of_a_larger_group_have_no_node() -> None:
    given = batch_of(np.zeros(3, np.int32), np.array([-1, 4, 2], np.int16), np.zeros((3, 1, 1), np.uint8))
    sample = sample_tokens([given], 5, 0)
    assert sample is not None
    assert sample.source_node.tolist() == [-1, -1, 1]


def test_no_tokens() -> None:
    assert sample_tokens([], 5, 0) is None
    assert sample_tokens([batch(5).select(slice(0, 0))], 5, 0) is None


def test_wrong_arrays() -> None:
    with pytest.raises(EbsimError, match="int64, expected uint8"):
        TokenSample(experts=np.zeros((2, 1, 1), np.int64), source_node=np.zeros(2, np.int16))
    with pytest.raises(EbsimError, match="shape 2×1×1"):
        TokenSample(experts=np.zeros((2, 1, 1), np.uint8), source_node=np.zeros(3, np.int16))
