"""Steps put together from routed requests."""

from __future__ import annotations

import numpy as np

from easybalance_sim.simulate.serving.mixing import (
    Pieces,
    answers,
    loads,
    one_prompt,
    prompts,
    tokens_of,
    tokens_per_data_rank,
)
from easybalance_sim.trace.schema import DECODE, PREFILL
from tests.routed_cases import routed_of


def pieces(**columns: list[int]) -> Pieces:
    """Pieces of one column per field."""
    return Pieces(**{name: np.array(values) for name, values in columns.items()})


def test_tokens_go_round_their_row() -> None:
    routed = routed_of(1)
    tokens = int(routed.tokens[3])
    batch = tokens_of(
        routed, pieces(step=[0, 1], row=[3, 0], first=[tokens - 2, 0], count=[5, 2], data_rank=[1, 0]), 2, 2
    )
    wanted = [tokens - 2, tokens - 1, 0, 1, 2]
    assert batch.position.tolist() == [*wanted, 0, 1]
    assert (batch.experts[:5] == routed.experts[routed.first[3] + np.array(wanted)]).all()
    assert batch.step.tolist() == [0] * 5 + [1] * 2
    assert batch.phase.tolist() == [DECODE] * 5 + [PREFILL] * 2
    assert batch.source_rank.tolist() == [1] * 5 + [0] * 2


def test_a_data_rank_deals_its_tokens_evenly() -> None:
    routed = routed_of(2)
    rng = np.random.default_rng(2)
    batch = tokens_of(routed, answers(routed, np.arange(40), 1, 32, 2, rng), 8, 2)
    assert np.bincount(batch.source_rank).tolist() == [8] * 8


def test_loads_are_sums_over_tokens() -> None:
    by_row = np.random.default_rng(3).random((80, 3, 4), np.float32)
    steps = pieces(step=[0, 0, 1], row=[5, 7, 5], first=[0, 0, 0], count=[2, 1, 4], data_rank=[0, 1, 1])
    found = loads(steps, by_row)
    np.testing.assert_allclose(found, [2 * by_row[5] + by_row[7], 4 * by_row[5]], rtol=1e-6)
    assert tokens_per_data_rank(steps, 2).tolist() == [[2, 1], [0, 4]]


def test_steps_of_answers_and_prompts() -> None:
    routed = routed_of(4)
    rng = np.random.default_rng(4)
    decode, prefill = answers(routed, np.arange(9), 3, 5, 2, rng), prompts(routed, np.arange(9), 3, 11, 2, rng)
    assert tokens_per_data_rank(decode, 2).tolist() == [[5, 5]] * 3
    assert tokens_per_data_rank(prefill, 2).tolist() == [[11, 11]] * 3
    assert (decode.row % 2 == 1).all()
    assert (prefill.row % 2 == 0).all()
    assert max(decode.row.max(), prefill.row.max()) < 18


def test_one_prompt_beside_answers() -> None:
    routed = routed_of(5)
    steps = one_prompt(routed, np.arange(9), 3, 30, 4, 5, np.random.default_rng(5))
    assert tokens_per_data_rank(steps, 5).tolist() == [[34, 4, 4, 4, 4], [4, 4, 34, 4, 4], [4, 4, 4, 4, 34]]
    assert (np.diff(steps.step) >= 0).all()
    assert (steps.count[steps.row % 2 == 0] == 30).all()
