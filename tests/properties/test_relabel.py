"""Renaming ranks: never more moves, the same sets of experts, nothing lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import AnyArray
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots, nearest_to
from tests.replay_cases import random_plan

LAYERS, EXPERTS = 2, 8


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Plan, Plan, AnyArray]:
    """Two plans of one cluster that may use different numbers of slots, and kinds of ranks."""
    ranks = draw(st.integers(1, 5))
    plans = []
    for _ in range(2):
        slots = draw(st.lists(st.integers(1, 6), min_size=ranks, max_size=ranks))
        slots[0] += max(0, EXPERTS - sum(slots))
        plans.append(random_plan(draw(st.integers(0, 10**6)), LAYERS, EXPERTS, slots))
    kind = np.array(draw(st.lists(st.integers(0, 2), min_size=ranks, max_size=ranks)))
    return plans[0], plans[1], kind


def contents(plan: Plan, layer: int, kind: AnyArray) -> Counter[tuple[int, tuple[int, ...]]]:
    """How often a kind of rank holds these experts."""
    held = np.split(plan.expert_of_slot[layer], plan.slot_start[1:-1])
    return Counter((int(k), tuple(sorted(experts.tolist()))) for k, experts in zip(kind, held, strict=True))


@settings(max_examples=150, deadline=None)
@given(pairs())
def test_renaming_keeps_the_sets_and_never_moves_more(pair: tuple[Plan, Plan, AnyArray]) -> None:
    old, new, kind = pair
    found = nearest_to(old, new, kind)
    assert found.slots_per_rank.tolist() == new.slots_per_rank.tolist()
    for layer in range(LAYERS):
        assert contents(found, layer, kind) == contents(new, layer, kind)
        before, after = (int(moving_slots(old, made)[layer].sum()) for made in (new, found))
        assert after <= before


@settings(max_examples=150, deadline=None)
@given(pairs())
def test_slots_are_kept_where_the_expert_stays(pair: tuple[Plan, Plan, AnyArray]) -> None:
    old, new, _ = pair
    found = keep_slots(old, new)
    every = np.arange(new.ranks)
    for layer in range(LAYERS):
        assert contents(found, layer, every) == contents(new, layer, every)
        for rank in range(new.ranks):
            had, has = (
                made.expert_of_slot[layer, made.slot_start[rank] : made.slot_start[rank + 1]].tolist()
                for made in (old, found)
            )
            for place, expert in enumerate(had[: len(has)]):
                if had.count(expert) == has.count(expert) == 1:
                    assert has[place] == expert


@settings(max_examples=50, deadline=None)
@given(pairs(), st.randoms())
def test_a_permuted_plan_is_found_again(pair: tuple[Plan, Plan, AnyArray], random: object) -> None:
    """Ranks of equal slots in any order: no move is left."""
    old = pair[0]
    equal = random_plan(3, LAYERS, EXPERTS, np.full(old.ranks, max(3, -(-EXPERTS // old.ranks))))
    width = int(equal.slots_per_rank[0])
    order = list(range(old.ranks))
    random.shuffle(order)  # type: ignore[attr-defined]
    rows = equal.expert_of_slot.reshape(LAYERS, old.ranks, width)[:, order].reshape(LAYERS, -1)
    moved = Plan(expert_of_slot=rows, slots_per_rank=equal.slots_per_rank, experts=EXPERTS, policy="")
    found = nearest_to(equal, moved, np.zeros(old.ranks, np.int64))
    assert not moving_slots(equal, found).any()
