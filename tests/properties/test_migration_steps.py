"""Every moment of a migration serves every expert, within the limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import BoolArray
from easybalance_sim.plan.exchange import exchanges
from easybalance_sim.plan.migration import migration, resident
from easybalance_sim.plan.migration_steps import Limits, Links, MigrationSteps, migration_steps, slots_by_rank
from easybalance_sim.plan.plan import Plan
from tests.random_placements import random_held, random_plan, random_slots

EXPERT_BYTES = 1000


def test_every_state_of_ten_thousand_random_migrations_serves_every_expert() -> None:
    """Exchanges in random order, none is needed before another; chains in random parts."""
    rng = np.random.default_rng(0)
    states = 0
    for _ in range(10_000):
        ranks, experts = int(rng.integers(1, 7)), int(rng.integers(2, 16))
        slots = random_slots(rng, ranks, experts)
        later = slots if rng.random() < 0.7 else random_slots(rng, ranks, experts)
        before, after = random_held(rng, slots, experts), random_held(rng, later, experts)
        found = exchanges(before[None], after[None], np.arange(ranks) // 2)
        held, least = before.copy(), np.minimum(before.sum(axis=0), after.sum(axis=0))
        while found:
            at = int(rng.integers(len(found)))
            changes = found[at].changes
            taken = len(changes) if found[at].ring else int(rng.integers(1, len(changes) + 1))
            for change in changes[:taken]:
                if change.leaves >= 0:
                    assert held[change.rank, change.leaves]
                    held[change.rank, change.leaves] = False
            for change in changes[:taken]:
                if change.arrives >= 0:
                    assert not held[change.rank, change.arrives]
                    held[change.rank, change.arrives] = True
            assert (held.sum(axis=0) >= least).all() and least.min() >= 1
            assert (held.sum(axis=1) <= np.maximum(slots, later)).all()
            found[at : at + 1] = [replace(found[at], changes=changes[taken:])] if taken < len(changes) else []
            states += 1
        assert np.array_equal(held, after)
    assert states > 40_000


def links(ranks: int) -> Links:
    return Links(node_of_rank=np.arange(ranks) // 2, nvlink_bytes_per_s=1e6, network_bytes_per_s=1e5)


def steps_between(old: Plan, new: Plan, limits: Limits) -> MigrationSteps:
    return migration_steps(slots_by_rank(old), new, links(new.ranks), expert_bytes=EXPERT_BYTES, limits=limits)


def walked(old: Plan, new: Plan, limits: Limits) -> BoolArray:
    """The placement at the end, each step checked on the way."""
    held, slots = resident(old), np.maximum(old.slots_per_rank, new.slots_per_rank)
    least = np.minimum(old.replicas, new.replicas)
    for step in steps_between(old, new, limits).steps:
        waiting = np.zeros(new.ranks, np.int64)
        for move in step.moves:
            assert move.source >= 0 and held[move.layer, move.source, move.expert], "read from a rank that holds it"
            assert 0 <= move.place < slots[move.rank]
            waiting[move.rank] += 1
        gone = [(move.layer, move.rank, move.replaces) for move in step.moves if move.replaces >= 0]
        gone += [(drop.layer, drop.rank, drop.expert) for drop in step.drops]
        for at in gone:
            assert held[at]
            held[at] = False
        for move in step.moves:
            assert not held[move.layer, move.rank, move.expert]
            held[move.layer, move.rank, move.expert] = True
        assert (held.sum(axis=1) >= least).all() and (held.sum(axis=2) <= slots).all()
        assert step.bytes == len(step.moves) * EXPERT_BYTES
        if limits.staging_slots:
            assert waiting.max(initial=0) == step.staging_slots <= limits.staging_slots
        assert not limits.step_s or step.seconds <= limits.step_s
        assert not limits.step_bytes or step.bytes <= limits.step_bytes
    return held


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    ranks=st.integers(1, 6),
    experts=st.integers(2, 14),
    grows=st.booleans(),
    staging=st.integers(0, 3),
    step_s=st.sampled_from([0.0, 0.03, 0.1]),
    step_experts=st.sampled_from([0, 6, 9]),
)
def test_steps_keep_their_limits_and_reach_the_plan(
    seed: int, ranks: int, experts: int, grows: bool, staging: int, step_s: float, step_experts: int
) -> None:
    """A ring of six ranks is the largest."""
    rng = np.random.default_rng(seed)
    slots = random_slots(rng, ranks, experts)
    old = random_plan(rng, slots, experts, 3)
    new = random_plan(rng, random_slots(rng, ranks, experts) if grows else slots, experts, 3)
    limits = Limits(staging_slots=staging, step_s=step_s, step_bytes=step_experts * EXPERT_BYTES)
    assert np.array_equal(walked(old, new, limits), resident(new))


@pytest.mark.parametrize("seed", range(3))
def test_no_more_travels_than_has_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = np.full(8, 5)
    old, new = random_plan(rng, slots, 32, 4), random_plan(rng, slots, 32, 4)
    found = steps_between(old, new, Limits(staging_slots=5))
    price = migration(
        old, new, expert_bytes=EXPERT_BYTES, node_of_rank=np.arange(8) // 2, nvlink_bytes_per_s=1e6,
        network_bytes_per_s=1e5,
    )  # fmt: skip
    assert found.moves == price.moves and found.bytes == price.bytes
