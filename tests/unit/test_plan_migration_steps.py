from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.plan.migration_steps import (
    Drop,
    Limits,
    Links,
    MigrationSteps,
    Move,
    migration_steps,
    slots_by_rank,
)
from easybalance_sim.plan.places import Shift
from easybalance_sim.plan.plan import Plan

LINKS = Links(node_of_rank=np.array([0, 0, 1, 1]), nvlink_bytes_per_s=1000.0, network_bytes_per_s=100.0)


def plan(*rows: list[int], slots: tuple[int, ...] = (2, 2, 2, 2), experts: int = 4) -> Plan:
    return Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array(slots), experts=experts, policy="hand")


def steps(old: Plan, new: Plan, **limits: float) -> MigrationSteps:
    return migration_steps(slots_by_rank(old), new, LINKS, expert_bytes=50, limits=Limits(**limits))  # type: ignore[arg-type]


OLD = plan([0, 1, 2, 3, 0, 1, 2, 3])


def test_a_copy_comes_from_the_own_node_and_takes_the_slot_of_what_it_replaces() -> None:
    found = steps(OLD, plan([0, 1, 1, 3, 0, 1, 2, 3]))
    (step,) = found.steps
    assert step.moves == (Move(layer=0, expert=1, source=0, rank=1, place=0, replaces=2, path="nvlink"),)
    assert (step.bytes, step.seconds, step.staging_slots, found.local) == (50, 0.05, 1, 0)


def test_a_copy_from_another_node_goes_over_the_network() -> None:
    (step,) = steps(plan([0, 1, 2, 3, 2, 3, 2, 3]), plan([0, 1, 2, 3, 0, 3, 2, 3])).steps
    assert step.moves[0].path == "network" and step.seconds == 0.5


def test_sources_are_taken_in_turn() -> None:
    old = plan([0, 1, 0, 2, 3, 1, 3, 2], [0, 1, 0, 2, 3, 1, 3, 2])
    new = plan([0, 1, 0, 2, 0, 1, 3, 2], [0, 1, 0, 2, 0, 1, 3, 2])
    found = steps(old, new, staging_slots=2)
    assert sorted(move.source for step in found.steps for move in step.moves) == [0, 1]


def test_staging_decides_how_much_goes_at_once() -> None:
    old, new = plan(*[[0, 1, 2, 3, 0, 1, 2, 3]] * 6), plan(*[[1, 0, 2, 3, 0, 1, 3, 0]] * 6)
    one, three = steps(old, new), steps(old, new, staging_slots=3)
    assert (len(one.steps), len(three.steps)) == (6, 2)
    assert [step.staging_slots for step in three.steps] == [3, 3]
    assert one.moves == three.moves == 6 and one.bytes == three.bytes == 300
    assert one.local == 12 + 12  # the first rank swaps its slots, the last one too once 0 has come


def test_bytes_and_seconds_bound_a_step() -> None:
    old, new = plan(*[[0, 1, 2, 3, 0, 1, 2, 3]] * 4), plan(*[[0, 1, 1, 3, 0, 1, 2, 3]] * 4)
    assert [step.bytes for step in steps(old, new, staging_slots=4).steps] == [200]
    assert [step.bytes for step in steps(old, new, staging_slots=4, step_bytes=120).steps] == [100, 100]
    assert [step.bytes for step in steps(old, new, staging_slots=4, step_s=0.16).steps] == [150, 50]


def test_an_exchange_that_is_too_big_for_a_step_is_refused() -> None:
    swapped = plan([0, 3, 2, 1, 0, 1, 2, 3])
    with pytest.raises(UsageError, match=r"2 experts go round in a ring .* — allow 0.0001 MB and 50 ms or more"):
        steps(OLD, swapped, step_bytes=60)


def test_limits_below_one_expert_are_refused_however_many_wait() -> None:
    old, new = plan(*[[0, 1, 2, 3, 0, 1, 2, 3]] * 100), plan(*[[0, 1, 1, 3, 0, 1, 2, 3]] * 100)
    with pytest.raises(UsageError, match="too low for one expert — allow 5e-05 MB and 50 ms or more"):
        steps(old, new, step_bytes=49)


def test_a_chain_may_stop_halfway() -> None:
    # 0 is dropped on rank 1, whose slot takes 2 from rank 2, whose slot takes 1: one after the other will do.
    old, new = plan([0, 1, 0, 3, 2, 3], slots=(2, 2, 2)), plan([0, 1, 2, 3, 1, 3], slots=(2, 2, 2))
    links = Links(node_of_rank=np.zeros(3, np.int64), nvlink_bytes_per_s=1000.0, network_bytes_per_s=100.0)
    found = migration_steps(slots_by_rank(old), new, links, expert_bytes=50, limits=Limits(step_bytes=50))
    assert [[(move.expert, move.rank) for move in step.moves] for step in found.steps] == [[(2, 1)], [(1, 2)]]


def test_without_staging_serving_stops_and_rings_wait_in_host_memory() -> None:
    found = steps(OLD, plan([0, 3, 2, 1, 0, 1, 1, 3]), staging_slots=0)
    assert found.drained and len(found.steps) == 1 and found.bounced == 1 and found.steps[0].staging_slots == 0


def test_stops_without_staging_can_be_kept_short() -> None:
    old, new = plan(*[[0, 1, 2, 3, 0, 1, 2, 3]] * 4), plan(*[[0, 1, 1, 3, 0, 1, 2, 3]] * 4)
    found = steps(old, new, staging_slots=0, step_s=0.1)
    assert found.drained and [step.seconds for step in found.steps] == pytest.approx([0.1, 0.1])


def test_a_ring_of_slots_needs_a_place_beside_them() -> None:
    new = plan([1, 0, 2, 3, 0, 1, 2, 3])
    assert (steps(OLD, new, staging_slots=0).bounced, steps(OLD, new).bounced, steps(OLD, new).local) == (1, 0, 2)


def test_an_expert_that_stands_twice_on_a_rank_leaves_both_slots() -> None:
    old, new = plan([0, 0, 2, 3, 0, 1, 2, 3]), plan([1, 2, 2, 3, 0, 1, 0, 3])
    places = {(move.rank, move.expert): move.place for step in steps(old, new).steps for move in step.moves}
    assert {places[0, 1], places[0, 2]} == {0, 1}


def test_a_second_copy_on_a_rank_is_made_there() -> None:
    (step,) = steps(OLD, plan([0, 0, 2, 3, 0, 1, 2, 3])).steps
    assert step.drops == (Drop(layer=0, expert=1, rank=0, place=1),)
    assert step.shifts == (Shift(layer=0, expert=0, rank=0, place=0, to=1),)


def test_slots_may_grow_and_shrink() -> None:
    small, big = plan([0, 1, 2, 3], slots=(1, 1, 1, 1)), plan([0, 1, 1, 2, 2, 3, 3, 0])
    grown = steps(small, big)
    assert [move.place for step in grown.steps for move in step.moves] == [1, 1, 1, 1]
    assert all(move.replaces == -1 for step in grown.steps for move in step.moves)
    shrunk = steps(big, small)
    drops = [drop for step in shrunk.steps for drop in step.drops]
    assert shrunk.moves == 0 and Drop(layer=0, expert=1, rank=0, place=1) in drops and len(drops) == 4


def test_a_rank_that_comes_back_is_filled() -> None:
    nothing = np.zeros((1, 0), np.int32)
    held = [np.array([[0, 1]]), np.array([[2, 3]]), np.array([[0, 2]]), nothing]
    new = plan([0, 1, 2, 3, 0, 2, 1, 3])
    found = migration_steps(held, new, LINKS, expert_bytes=50, limits=Limits())
    assert [(m.expert, m.rank, m.place) for s in found.steps for m in s.moves] == [(3, 3, 1), (1, 3, 0)]


def test_what_no_rank_holds_comes_from_outside() -> None:
    held = [np.array([[0, 1]]), np.array([[2, 0]]), np.array([[0, 2]]), np.array([[1, 2]])]
    found = migration_steps(held, OLD, LINKS, expert_bytes=50, limits=Limits())
    moves = [move for step in found.steps for move in step.moves if move.expert == 3]
    assert moves[0].path == "outside" and moves[0].source == -1
    assert len(moves) == 1 or {move.path for move in moves[1:]} <= {"nvlink", "network", "outside"}


def test_layers_change_in_the_order_asked_for() -> None:
    old, new = plan(*[[0, 1, 2, 3, 0, 1, 2, 3]] * 3), plan(*[[0, 1, 1, 3, 0, 1, 2, 3]] * 3)
    found = migration_steps(slots_by_rank(old), new, LINKS, expert_bytes=50, limits=Limits(), order=[2, 0, 1])
    assert [step.moves[0].layer for step in found.steps] == [2, 0, 1]


def test_equal_plans_need_no_step() -> None:
    found = steps(OLD, OLD)
    assert found == MigrationSteps(steps=(), drained=False, bounced=0) and found.seconds == 0
