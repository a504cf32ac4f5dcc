"""Compiled plan scoring against its specification, and against the numpy form of an even split.

Claimed: equal up to rounding (an expert's share is a product here and a quotient there); NaN in the same places.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, FloatArray, frozen
from easybalance_sim.errors import PlanError
from easybalance_sim.kernels import numba_scoring, reference_scoring
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.expected import even_imbalance, even_imbalances, even_rank_tokens
from easybalance_sim.replay.tally import imbalance


def plans_of(seed: int, count: int, layers: int, experts: int, per_rank: list[int]) -> list[Plan]:
    """Random slots in which every expert stands at least once; now and then twice on a rank."""
    rng, spare = np.random.default_rng(seed), sum(per_rank) - experts
    every = np.broadcast_to(np.arange(experts), (count, layers, experts))
    more = rng.integers(0, experts, (count, layers, spare))
    slots = rng.permuted(np.concatenate([every, more], axis=2), axis=2)
    return [
        Plan(expert_of_slot=one, slots_per_rank=np.array(per_rank), experts=experts, policy="random") for one in slots
    ]


def tokens_of(seed: int, windows: int, layers: int, experts: int, empty: float = 0.2) -> AnyArray:
    """int64[W, L, E]; a share of the windows has no tokens in some layer."""
    rng = np.random.default_rng(seed)
    tokens = rng.poisson(rng.lognormal(1, 1.5, (windows, layers, experts)))
    tokens[rng.random((windows, layers)) < empty] = 0
    return frozen(tokens, np.int64)


def scored(module: ModuleType, plans: list[Plan], tokens: AnyArray, speed: FloatArray) -> FloatArray:
    out = np.full((len(plans), plans[0].layers, len(tokens)), -1.0)
    slots = frozen(np.stack([plan.expert_of_slot for plan in plans]))
    module.score_plans(slots, plans[0].slot_start, tokens, frozen(speed.sum() / speed), out)
    return out


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 999),
    count=st.integers(1, 3),
    layers=st.integers(1, 3),
    windows=st.integers(0, 5),
    per_rank=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    data=st.data(),
)
def test_scores_are_those_of_the_specification(
    seed: int, count: int, layers: int, windows: int, per_rank: list[int], data: st.DataObject
) -> None:
    experts = data.draw(st.integers(1, sum(per_rank)))
    plans, tokens = plans_of(seed, count, layers, experts, per_rank), tokens_of(seed, windows, layers, experts)
    speed = np.random.default_rng(seed).choice([0.5, 1.0, 1.25], len(per_rank))
    compiled, specified = (scored(module, plans, tokens, speed) for module in (numba_scoring, reference_scoring))
    np.testing.assert_allclose(compiled, specified, rtol=1e-12)


@pytest.mark.parametrize("windows", [1, 63, 64, 65, 128, 200])
def test_windows_in_blocks(windows: int) -> None:
    """All of them scored, none twice, wherever a block ends."""
    plans, tokens = plans_of(1, 2, 3, 24, [5] * 6), tokens_of(windows, windows, 3, 24)
    speed = np.ones(6)
    compiled, specified = (scored(module, plans, tokens, speed) for module in (numba_scoring, reference_scoring))
    np.testing.assert_allclose(compiled, specified, rtol=1e-12)


@pytest.mark.parametrize("speed", [np.ones(8), np.linspace(0.5, 2, 8)], ids=["equal", "uneven"])
def test_an_even_split_is_that_of_the_numpy_form(speed: FloatArray) -> None:
    tokens = tokens_of(3, 70, 4, 32)
    for plan in plans_of(2, 3, 4, 32, [5, 5, 6, 6, 4, 4, 5, 5]):
        wanted = imbalance(even_rank_tokens(tokens, plan), speed)
        assert np.isnan(wanted).any()
        np.testing.assert_allclose(even_imbalance(tokens, plan, speed), wanted, rtol=1e-12)


def test_plans_together_are_plans_one_by_one() -> None:
    tokens, plans, speed = tokens_of(4, 20, 3, 16), plans_of(3, 5, 3, 16, [5] * 4), np.ones(4)
    together = even_imbalances(tokens, plans, speed)
    assert together.shape == (5, 20, 3)
    for one, plan in zip(together, plans, strict=True):
        np.testing.assert_array_equal(one, even_imbalance(tokens, plan, speed))


def test_views_and_writable_tokens_are_taken_as_they_are() -> None:
    """Callers hold slices of windows; they are neither changed nor marked read-only."""
    tokens, (plan,) = np.array(tokens_of(5, 20, 3, 16)), plans_of(4, 1, 3, 16, [5] * 4)
    before = tokens.copy()
    whole = even_imbalance(tokens, plan, np.ones(4))
    np.testing.assert_array_equal(even_imbalance(tokens[::2], plan, np.ones(4)), whole[::2])
    assert tokens.flags.writeable
    np.testing.assert_array_equal(tokens, before)


def test_plans_of_other_slots_are_refused() -> None:
    one, other = plans_of(0, 1, 2, 8, [5, 5])[0], plans_of(0, 1, 2, 8, [6, 4])[0]
    with pytest.raises(PlanError, match="same slots per rank"):
        even_imbalances(tokens_of(0, 3, 2, 8), [one, other], np.ones(2))
