"""What holds for pair counts of any traffic."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, frozen
from easybalance_sim.load.coactivation import Coactivation, PairCounter
from tests.replay_cases import random_ids

EXPERTS = 9
modest = settings(max_examples=30, deadline=None)
traffic = st.builds(
    random_ids, st.integers(0, 999), st.integers(0, 40), st.integers(1, 3), st.just(EXPERTS), st.integers(1, 4)
)


def counted(ids: AnyArray) -> Coactivation:
    counter = PairCounter(ids.shape[1], EXPERTS)
    counter.add(frozen(ids, np.uint8))
    return counter.counted()


@modest
@given(traffic, st.lists(st.integers(0, 40), max_size=3))
def test_shards_add_up(ids: AnyArray, cuts: list[int]) -> None:
    whole, parts = counted(ids), reduce(add, [counted(part) for part in np.split(ids, sorted(cuts))])
    np.testing.assert_array_equal(whole.pairs, parts.pairs)
    assert whole.tokens == parts.tokens == len(ids)


@modest
@given(traffic)
def test_every_token_makes_as_many_pairs(ids: AnyArray) -> None:
    tokens, _, top_k = ids.shape
    pairs = counted(ids).pairs
    np.testing.assert_array_equal(pairs.sum(axis=2), top_k * np.diagonal(pairs, axis1=1, axis2=2))
    assert (pairs.sum(axis=(1, 2)) == tokens * top_k**2).all()


@modest
@given(traffic, st.permutations(range(EXPERTS)))
def test_names_of_experts_do_not_matter(ids: AnyArray, names: list[int]) -> None:
    plain, renamed = counted(ids), counted(np.array(names)[ids])
    np.testing.assert_array_equal(renamed.pairs[:, names][:, :, names], plain.pairs)
    np.testing.assert_allclose(renamed.lift()[:, names][:, :, names], plain.lift(), rtol=1e-6)


@modest
@given(traffic)
def test_shares_are_shares(ids: AnyArray) -> None:
    found = counted(ids)
    for share in found.strong_share():
        known = share[~np.isnan(share)]
        assert ((known >= 0) & (known <= 1 + 1e-12)).all()
    lifts = [pair.lift for pair in found.strongest(4)]
    assert len(lifts) <= 4 and all(lift > 0 for lift in lifts)
