"""What holds for caches of any size on any traffic."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import frozen
from easybalance_sim.simulate.offloading import policies, prefetch
from easybalance_sim.simulate.offloading.cache import Cached, Transfer, cached, fetching_ahead, on_demand
from easybalance_sim.simulate.offloading.points import Ground, good_from, hit_rates, point, sizes, slowdowns
from easybalance_sim.simulate.offloading.policies import History, Priorities
from easybalance_sim.simulate.offloading.prefetch import View
from easybalance_sim.simulate.offloading.uses import Sides, Uses, sides, uses_of
from tests.offload_steps import random_steps

LINK = Transfer(latency_s=2.0, item_s=3.0)
SEEDS = st.integers(0, 10_000)
TOKENS = st.integers(1, 4)
SCOPE = st.sampled_from(["layer", "model"])
MANY = settings(max_examples=25, deadline=None)


class Case:
    """Both halves of random steps, ready for every policy."""

    def __init__(self, seed: int, tokens: int, scope: str, top_k: int = 2) -> None:
        self.two: Sides = sides(random_steps(seed, 24, tokens, top_k=top_k), 0.5)
        self.past, self.judged, self.scope = uses_of(self.two.past), uses_of(self.two.judged), scope
        self.history = History(past=self.past, judged=self.judged, frequency=self.two.frequency())
        rng = np.random.default_rng(seed)
        self.compute = frozen(rng.integers(0, 6, self.judged.positions), np.float64)

    def run(self, policy: str) -> Cached:
        return cached(self.past, self.judged, policies.priorities(policy, self.history), self.scope)

    def wanted(self, name: str, ahead: int = 1) -> prefetch.Wanted:
        return prefetch.wanted(name, View(sides=self.two, past=self.past, judged=self.judged, ahead=ahead))


def fewest_misses(uses: Uses, capacity: int, full: bool) -> int:
    """By trying everything that one cache for all layers could keep; full: it may hold anything at the start."""
    items = range(uses.items)
    begin = combinations(items, min(capacity, uses.items)) if full else [()]
    costs = {frozenset(kept): 0 for kept in begin}
    for p in range(uses.positions):
        asked = frozenset(uses.item[uses.start[p] : uses.start[p + 1]].tolist())
        after: dict[frozenset[int], int] = {}
        for there, cost in costs.items():
            paid, could = cost + len(asked - there), there | asked
            for kept in combinations(sorted(could), min(capacity, len(could))):
                state = frozenset(kept)
                after[state] = min(paid, after.get(state, paid))
        costs = after
    return min(costs.values())


@MANY
@given(SEEDS, st.integers(1, 5), st.booleans())
def test_belady_is_the_optimum_by_brute_force(seed: int, capacity: int, full: bool) -> None:
    uses = uses_of(random_steps(seed, 5, 1, layers=2, experts=3, top_k=1 + seed % 2))
    history = History(past=uses, judged=uses, frequency=np.zeros(uses.items))
    made = policies.priorities("belady", history)
    given_first = made.first if full else np.full(uses.items, -np.inf)
    run = cached(uses, uses, Priorities(judged=made.judged, first=given_first), "model")
    assert on_demand(run, capacity, LINK).misses.sum() == fewest_misses(uses, capacity, full)


@MANY
@given(SEEDS, TOKENS, SCOPE)
def test_no_policy_misses_less_than_belady_at_any_size(seed: int, tokens: int, scope: str) -> None:
    case = Case(seed, tokens, scope)
    best = hit_rates(case.run("belady"))
    for name in policies.names():
        assert (hit_rates(case.run(name)) <= best + 1e-12).all()


@MANY
@given(SEEDS, TOKENS, SCOPE, st.sampled_from(policies.names()))
def test_a_larger_cache_hits_no_less(seed: int, tokens: int, scope: str, name: str) -> None:
    case = Case(seed, tokens, scope)
    run = case.run(name)
    hits = np.array([on_demand(run, size, LINK).hits for size in range(1, case.judged.items + 1)])
    assert (np.diff(hits, axis=0) >= 0).all()


@MANY
@given(SEEDS, TOKENS, SCOPE, st.sampled_from(policies.names()))
def test_the_passes_over_all_sizes_agree_with_the_clock(seed: int, tokens: int, scope: str, name: str) -> None:
    """Without anything fetched ahead, a run of one size hits and waits as the stack says, and so do the curves."""
    case = Case(seed, tokens, scope)
    run = case.run(name)
    compute = frozen(case.compute + 1.0)
    ground = Ground(uses=case.judged, compute=compute, tokens=1, transfer=LINK, resident_bytes=1, link_bytes=1)
    for size, hit_rate, slowdown in zip(sizes(run), hit_rates(run), slowdowns(run, ground), strict=True):
        plain = on_demand(run, int(size), LINK)
        timed = fetching_ahead(run, int(size), LINK, compute, case.wanted("none"), 1)
        np.testing.assert_array_equal(plain.hits, timed.hits)
        np.testing.assert_array_equal(plain.hit_tokens, timed.hit_tokens)
        np.testing.assert_allclose(plain.stall, timed.stall)
        numbers = point(ground, int(size), plain)
        assert numbers["hit_rate"] == pytest.approx(hit_rate)
        assert numbers["slowdown"] == pytest.approx(slowdown)


@MANY
@given(SEEDS, TOKENS, SCOPE)
def test_with_room_for_all_each_expert_is_loaded_once(seed: int, tokens: int, scope: str) -> None:
    """Compulsory misses only, from an empty cache."""
    case = Case(seed, tokens, scope)
    values = Priorities(judged=np.zeros(len(case.judged.item)), first=np.full(case.judged.items, -np.inf))
    run = cached(case.past, case.judged, values, scope)
    assert on_demand(run, case.judged.items, LINK).misses.sum() == len(np.unique(case.judged.item))


@MANY
@given(SEEDS, TOKENS, SCOPE, st.sampled_from(["history", "oracle", "previous-layer"]), st.integers(1, 12))
def test_without_time_to_fetch_ahead_nothing_changes(seed: int, tokens: int, scope: str, name: str, size: int) -> None:
    """Layers that take no time leave the link no moment in which nothing is missing."""
    case = Case(seed, tokens, scope)
    run, none = case.run("lru"), frozen(np.zeros(case.judged.positions))
    plain = on_demand(run, size, LINK)
    fetched = fetching_ahead(run, size, LINK, none, case.wanted(name), 1)
    assert fetched.ahead.sum() == 0
    np.testing.assert_array_equal(plain.hits, fetched.hits)
    np.testing.assert_allclose(plain.stall, fetched.stall)


@MANY
@given(SEEDS, TOKENS, SCOPE, st.sampled_from(["history", "oracle", "previous-layer"]), st.integers(1, 12))
def test_loads_are_conserved(seed: int, tokens: int, scope: str, name: str, size: int) -> None:
    """Every use is a hit, late or a miss; nothing loads less than Belady; a layer waits for what it loads."""
    case = Case(seed, tokens, scope)
    run = fetching_ahead(case.run("lru"), size, LINK, case.compute, case.wanted(name), 1)
    np.testing.assert_array_equal(run.hits + run.late + run.misses, np.diff(case.judged.start))
    assert (run.used_ahead <= run.hits + run.late).all()
    assert run.used_ahead.sum() <= run.ahead.sum()
    least = on_demand(case.run("belady"), size, LINK).misses.sum()
    assert run.misses.sum() + run.ahead.sum() >= least
    assert (run.stall >= np.where(run.misses > 0, LINK.latency_s + run.misses * LINK.item_s, 0)).all()
    assert (run.stall[run.hits == np.diff(case.judged.start)] == 0).all()


@MANY
@given(SEEDS, TOKENS)
def test_with_time_enough_the_oracle_leaves_nothing_to_wait_for(seed: int, tokens: int) -> None:
    """A cache that holds what two layers ask for, and a second layer that begins long after the first."""
    case = Case(seed, tokens, "model", top_k=1)
    long = frozen(np.full(case.judged.positions, 1e4))
    run = fetching_ahead(case.run("lru"), 2 * tokens, LINK, long, case.wanted("oracle"), 1)
    assert run.stall[1:].sum() == 0


def test_good_begins_where_it_stays() -> None:
    assert good_from(np.array([True, False, True, True])) == 2
    assert good_from(np.ones(4)) == 0
    assert good_from(np.array([True, True, True, False])) is None
