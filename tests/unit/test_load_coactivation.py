"""Pairs of experts: counts of a stream, lift over independent choices, and what noise alone would show."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.errors import EbsimError
from easybalance_sim.load import coactivation
from easybalance_sim.load.coactivation import Coactivation, PairCounter, counted_layers, expected
from tests.replay_cases import batch_of, random_ids


def counted(ids: AnyArray, experts: int) -> Coactivation:
    """Of ids [T, L, K]."""
    counter = PairCounter(ids.shape[1], experts)
    counter.add(frozen(ids, np.uint8))
    return counter.counted()


def friends(tokens: int, seed: int) -> AnyArray:
    """[T, 1, 2]: experts 10 and 11 in a third of the tokens, else any two of 12."""
    ids = random_ids(seed, tokens, 1, 12, 2)
    ids[::3, 0] = [10, 11]
    return ids


def test_a_stream_is_counted_as_it_passes() -> None:
    batches = [batch_of([step] * 3, [0] * 3, [[0, 1], [1, 2], [0, 1]]) for step in range(2)]
    counter = PairCounter(1, 3)
    assert [batch is passed for batch, passed in zip(batches, counter.watching(batches), strict=True)] == [True, True]
    found = counter.counted()
    assert (found.tokens, found.pairs[0].tolist()) == (6, [[4, 4, 0], [4, 6, 2], [0, 2, 2]])


def test_independent_choices_have_no_lift() -> None:
    found = counted(random_ids(3, 40000, 2, 16, 4), 16)
    lift = found.lift()
    assert np.isnan(lift[:, range(16), range(16)]).all()
    # Choices without replacement are not quite those of the model: hot pairs come out a little below it.
    assert np.nanmax(np.abs(np.where(found.pairs > 1000, lift, 1) - 1)) < 0.1
    share, chance = found.strong_share()
    assert share.max() < 0.001 and chance.max() < 0.001


def test_friends_stand_out() -> None:
    found = counted(friends(3000, 0), 12)
    (best, *_) = found.strongest(3)
    assert (best.row, best.experts, best.together) == (0, (10, 11), found.pairs[0, 10, 11])
    assert best.lift == pytest.approx(found.lift()[0, 10, 11]) and best.lift > 2
    assert [pair.lift for pair in found.strongest(1)] == [best.lift]


def test_few_tokens_are_told_from_friends_by_what_chance_would_show() -> None:
    share, chance = counted(random_ids(0, 60, 1, 40, 4), 40).strong_share()
    assert share[0] > 0.2 and chance[0] == pytest.approx(share[0], abs=0.15)


def test_every_expert_keeps_its_partners() -> None:
    pairs = counted(friends(500, 1), 12).pairs[0]
    mean = expected(pairs)
    np.testing.assert_allclose(mean.sum(axis=1), pairs.sum(axis=1) - np.diag(pairs), rtol=1e-6)
    assert not np.diag(mean).any()


def test_one_expert_in_every_pair() -> None:
    pairs = counted(np.array([[[0, 1]], [[2, 0]], [[0, 3]], [[3, 0]]]), 5).pairs[0]
    np.testing.assert_allclose(expected(pairs)[0], [0, 1, 1, 2, 0], rtol=0.02)


@pytest.mark.parametrize("ids", [np.zeros((0, 2, 3), np.int64), np.zeros((4, 2, 1), np.int64)], ids=["none", "top-1"])
def test_no_pairs(ids: AnyArray) -> None:
    found = counted(ids, 4)
    assert np.isnan(found.lift()).all() and np.isnan(found.strong_share()).all()
    assert found.strongest(3) == []


def test_large_models_are_counted_on_a_spread_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted_layers(58, 256).tolist() == list(range(58))
    assert counted_layers(61, 8192).tolist() == [0]
    assert counted_layers(61, 16384).tolist() == []
    monkeypatch.setattr(coactivation, "PAIR_BYTES", 3 * 8 * 16 * 16)
    ids = random_ids(0, 50, 9, 16, 3)
    few = counted(ids, 16)
    assert few.rows.tolist() == [0, 4, 8]
    monkeypatch.undo()
    np.testing.assert_array_equal(few.pairs, counted(ids, 16).pairs[[0, 4, 8]])
    assert few.strongest(1)[0].row in (0, 4, 8)


def test_shards_of_other_layers_do_not_add_up() -> None:
    one, two = counted(random_ids(0, 5, 1, 8, 2), 8), counted(random_ids(0, 5, 2, 8, 2), 8)
    with pytest.raises(EbsimError, match="shards differ"):
        one + two
    with pytest.raises(EbsimError, match="expected 2×any×8"):
        Coactivation(pairs=one.pairs, rows=two.rows, tokens=5)
