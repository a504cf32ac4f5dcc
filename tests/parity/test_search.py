"""The placement search against its specification.

Claimed: the value that the compiled search returns is the specification's objective of the placement it returns
(float32 sums: 1e-4); both keep every rule; the best of some compiled walks is the optimum of instances small enough to
enumerate. Not claimed: equal walks, since one rounding decides differently sooner or later.
"""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray
from easybalance_sim.kernels import numba_search, reference_search
from tests.parity.search_cases import CASES, COLD, PROPOSALS, WALKS, case, rules_broken

BOTH = pytest.mark.parametrize("module", [numba_search, reference_search], ids=["numba", "reference"])


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_the_value_is_that_of_a_legal_placement_no_worse_than_the_start(module: ModuleType, name: str) -> None:
    problem = CASES[name]
    out, lowest = problem.run(module, 300)
    assert rules_broken(problem, out) == []
    for layer, slots in enumerate(out):
        assert lowest[layer] == pytest.approx(problem.value(slots, layer), rel=1e-4)
        assert lowest[layer] <= problem.value(problem.start[layer], layer) * (1 + 1e-5)


@given(
    st.integers(0, 10**6), st.integers(2, 12), st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.3]), st.sampled_from([0, 3, 10**9]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_shape_keeps_the_rules(seed: int, experts: int, per_rank: list[int], active: float, most: int) -> None:
    per_rank = [min(slots, experts) for slots in per_rank]
    if sum(per_rank) < experts:
        per_rank += [1] * (experts - sum(per_rank))
    problem = case(seed, 2, experts, per_rank, windows=3, active=active, most_moves=most)
    out, lowest = problem.run(numba_search, 500, seed)
    assert rules_broken(problem, out) == []
    for layer, slots in enumerate(out):
        assert lowest[layer] == pytest.approx(problem.value(slots, layer), rel=1e-3)


@pytest.mark.parametrize("name", ["even ranks", "many experts"])
def test_a_short_walk_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too short for a rounding to decide; the start temperature, which depends on the experts, shows."""
    for module in (numba_search, reference_search):
        monkeypatch.setattr(module, "FEWEST_COLD", COLD)
    (compiled, value), (specified, expected) = (
        WALKS[name].run(module, PROPOSALS) for module in (numba_search, reference_search)
    )
    assert (compiled == specified).all() and value == pytest.approx(expected, rel=1e-5)


@BOTH
@pytest.mark.parametrize("name", ["even ranks", "active experts", "slow rank"])
def test_the_same_seed_walks_the_same_way(module: ModuleType, name: str) -> None:
    first, second = (CASES[name].run(module, 200, seed=9) for _ in range(2))
    assert (first[0] == second[0]).all() and (first[1] == second[1]).all()


def every_placement(experts: int, per_rank: list[int]) -> list[AnyArray]:
    """All placements without an expert twice on a rank that serve every expert (slots of a rank unordered)."""
    choices = [list(itertools.combinations(range(experts), slots)) for slots in per_rank]
    joined = (np.array(list(itertools.chain(*pick)), np.int32) for pick in itertools.product(*choices))
    return [slots for slots in joined if len(set(slots.tolist())) == experts]


@pytest.mark.parametrize(
    ("per_rank", "more"),
    [([2, 2, 2], {}), ([3, 2], {}), ([2, 2, 2], {"active": 0.5, "slope": 0.3}), ([2, 2, 2], {"pace": [1.0, 1.0, 3.0]})],
)
def test_small_instances_are_solved(per_rank: list[int], more: dict[str, Any]) -> None:
    for seed in range(4):
        problem = case(seed, 1, 4, per_rank, windows=3, **more)
        best = min(problem.value(slots, 0) for slots in every_placement(4, per_rank))
        found = min(problem.run(numba_search, 2000, walk)[1][0] for walk in range(40))
        assert found == pytest.approx(best, rel=1e-3)


def test_a_higher_price_moves_less() -> None:
    moves = []
    for price in (0.0, 1.0, 100.0, 1e9):
        problem = case(11, 1, 16, [5, 5, 5, 5], price=price)
        moves.append(problem.moves(problem.run(numba_search, 20_000)[0][0], 0))
    assert moves == sorted(moves, reverse=True)
    assert moves[0] > 4 and moves[-1] == 0


def test_a_slow_rank_gets_less() -> None:
    problem = case(12, 1, 16, [5, 5, 5, 5], pace=[2.0, 1.0, 1.0, 1.0])
    slots = problem.run(numba_search, 20_000)[0][0]
    share = problem.tokens[0].mean(axis=1) / np.bincount(slots, minlength=16)
    load = np.bincount(problem.rank_of_slot, weights=share[slots])
    assert load[0] < 0.75 * load[1:].min()


def test_what_is_refused_unseen_would_have_been_refused() -> None:
    """The estimate is one: of the proposals that it calls hopeless a few in a hundred may rise by less than a
    temperature, none falls."""
    problem = case(13, 1, 40, [8] * 8, windows=16)
    slots = problem.run(numba_search, 20_000)[0][0]
    value = problem.value(slots, 0)
    walk = reference_search.Walk(
        problem.rank_of_slot,
        problem.tokens[0],
        problem.pace,
        1.0,
        0.0,
        problem.per_step,
        problem.held[0],
        0.0,
        10**9,
        3,
    )
    temperature = 0.01 * value / 8
    rises = [
        problem.value(changed, 0) - value
        for proposal in range(1500)
        if (changed := walk.propose(slots, proposal % 10 < 7)) is not None
        and walk.hopeless(slots, changed, temperature)
    ]
    assert len(rises) > 80
    assert min(rises) > 0 and np.quantile(rises, 0.05) > temperature
