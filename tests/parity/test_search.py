"""The placement search against its specification.

Claimed: the value that the compiled search returns is the specification's objective of the placement it returns
(float32 sums: 1e-4); both keep every rule; the best of some compiled walks is the optimum of instances small enough to
enumerate. Not claimed: equal walks, since one rounding decides differently sooner or later.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray, FloatArray, frozen
from easybalance_sim.kernels import numba_search, reference_search

BOTH = pytest.mark.parametrize("module", [numba_search, reference_search], ids=["numba", "reference"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One problem of L layers; see `reference_search.search`."""

    start: AnyArray
    rank_of_slot: AnyArray
    tokens: AnyArray
    pace: AnyArray
    slope: float = 1.0
    active: float = 0.0
    held: AnyArray
    price: float = 0.0
    most_moves: int = 10**9

    @property
    def per_step(self) -> AnyArray:
        """float32[T] of the tokens that stand for one step."""
        return frozen(np.linspace(0.5, 2.0, self.tokens.shape[2]), np.float32)

    def run(self, module: ModuleType, proposals: int, seed: int = 1) -> tuple[AnyArray, FloatArray]:
        """Best placements [L, P] and their values [L]."""
        out, lowest = np.zeros_like(self.start), np.zeros(len(self.start))
        module.search(
            self.start, self.rank_of_slot, self.tokens, self.pace, self.slope, self.active, self.per_step, self.held,
            self.price, self.most_moves, proposals, seed, out, lowest,
        )  # fmt: skip
        return out, lowest

    def moves(self, slots: AnyArray, layer: int) -> int:
        """Slots whose expert the rank does not hold."""
        return int(np.count_nonzero(~self.held[layer][self.rank_of_slot, slots]))

    def value(self, slots: AnyArray, layer: int) -> float:
        """The specification's value."""
        power = reference_search.objective(
            slots, self.rank_of_slot, self.tokens[layer], self.pace, self.slope, self.active, self.per_step
        )
        return power + self.price * self.moves(slots, layer)


def case(seed: int, layers: int, experts: int, per_rank: list[int], windows: int = 5, **more: Any) -> Case:
    """Random loads; experts dealt in turn so that none stands twice on a rank."""
    rng = np.random.default_rng(seed)
    rank_of_slot = np.repeat(np.arange(len(per_rank)), per_rank)
    start = np.tile(np.arange(sum(per_rank)) % experts, (layers, 1))
    tokens = rng.gamma(0.7, 1.0, (layers, experts, windows)) + 0.01
    tokens *= len(per_rank) / tokens.sum(axis=1, keepdims=True)
    held = np.zeros((layers, len(per_rank), experts), np.bool_)
    held[np.arange(layers)[:, None], rank_of_slot[None, :], start] = True
    given_values: dict[str, Any] = {"pace": np.ones(len(per_rank)), "held": held, **more}
    return Case(
        start=frozen(start, np.int32),
        rank_of_slot=frozen(rank_of_slot, np.int32),
        tokens=frozen(tokens, np.float32),
        pace=frozen(given_values.pop("pace"), np.float32),
        held=frozen(given_values.pop("held"), np.bool_),
        **given_values,
    )


CASES = {
    "even ranks": case(0, 2, 8, [3, 3, 3, 3]),
    "no redundancy": case(1, 2, 9, [3, 3, 3]),
    "ragged": case(2, 2, 6, [1, 4, 3]),
    "one rank": case(3, 1, 4, [4]),
    "slow rank": case(4, 1, 8, [3, 3, 3, 3], pace=[1.0, 1.0, 2.0, 1.0]),
    "active experts": case(5, 2, 8, [3, 3, 3, 3], slope=0.2, active=0.5),
    "dear moves": case(6, 2, 8, [3, 3, 3, 3], price=0.4),
    "few moves": case(7, 2, 8, [3, 3, 3, 3], most_moves=2),
}


def require_legal(problem: Case, out: AnyArray) -> None:
    experts = problem.tokens.shape[1]
    for layer, slots in enumerate(out):
        assert np.bincount(slots, minlength=experts).min() >= 1
        pairs = set(zip(problem.rank_of_slot.tolist(), slots.tolist(), strict=True))
        assert len(pairs) == len(slots)
        assert problem.moves(slots, layer) <= problem.most_moves


@BOTH
@pytest.mark.parametrize("name", CASES)
def test_the_value_is_that_of_a_legal_placement_no_worse_than_the_start(module: ModuleType, name: str) -> None:
    problem = CASES[name]
    out, lowest = problem.run(module, 300)
    require_legal(problem, out)
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
    require_legal(problem, out)
    for layer, slots in enumerate(out):
        assert lowest[layer] == pytest.approx(problem.value(slots, layer), rel=1e-3)


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
