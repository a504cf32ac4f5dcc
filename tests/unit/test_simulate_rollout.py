from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

import numpy as np
import pytest

from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.rollout import invariants
from easybalance_sim.simulate.rollout.explore import Exploration, explore, wander
from easybalance_sim.simulate.rollout.faults import FAULTS, IN_STAGING, is_fault
from easybalance_sim.simulate.rollout.protocol import PARTS, RETREAT, Protocol, events
from easybalance_sim.simulate.rollout.state import NEW, NOT_BEGUN, OLD, Decision, Group, Rank, Told, Weights, fresh
from easybalance_sim.simulate.rollout.symmetry import renamings, representative
from tests.ebsim_process import ROOT

ALL_LOAD = (True, True, True)
SOME_LOAD = (True, True, False)
MODES = pytest.mark.parametrize("staging", [True, False], ids=["staging", "in-place"])


@MODES
@pytest.mark.parametrize("fault", FAULTS)
def test_no_order_of_events_breaks_an_invariant(fault: str, staging: bool) -> None:
    found = explore(fresh(ALL_LOAD, [fault]), Protocol(staging=staging))
    assert (found.violation, found.history, found.finished) == ("", (), True)
    assert found.states > 1_000 and 0 < found.published < found.settled
    assert (found.fault_events > 0) == (staging or fault != IN_STAGING)


@pytest.mark.parametrize(
    ("loads", "staging", "counts"),
    [
        (ALL_LOAD, True, (17_820, 73_815, 44, 4)),
        (ALL_LOAD, False, (3_219, 11_770, 17, 3)),
        (SOME_LOAD, True, (9_896, 37_961, 26, 4)),
        ((False, False, False), True, (4_646, 16_997, 18, 4)),
    ],
)
def test_the_number_of_states_is_known(loads: Sequence[bool], staging: bool, counts: tuple[int, ...]) -> None:
    """A change of the protocol shows in these counts."""
    found = explore(fresh(loads), Protocol(staging=staging))
    assert (found.states, found.transitions, found.settled, found.published) == counts


@MODES
def test_ranks_without_anything_to_load(staging: bool) -> None:
    found = explore(fresh(SOME_LOAD, FAULTS, 2), Protocol(staging=staging, steps=1))
    assert found.violation == "" and found.published > 0


@pytest.mark.parametrize(("loads", "staging"), [(ALL_LOAD, True), (SOME_LOAD, True), (ALL_LOAD, False)])
def test_states_that_rename_ranks_are_counted_each(loads: Sequence[bool], staging: bool) -> None:
    """Against a search that knows nothing of symmetry."""
    protocol = Protocol(staging=staging, steps=2)
    start = fresh(loads, ["rank-restarts"])
    seen, waiting, transitions = {start}, [start], 0
    while waiting:
        for _, after in events(waiting.pop(), protocol):
            transitions += 1
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    found = explore(start, protocol)
    assert (found.states, found.transitions) == (len(seen), transitions)
    assert sum(map(renamings, {representative(group) for group in seen})) == len(seen)


def test_a_rank_that_loads_nothing_is_ready_at_once() -> None:
    names = {name for name, _ in events(fresh((False, True)), Protocol())}
    assert "rank 1 loads" in names and "rank 0 loads" not in names
    assert "coordinator proposes a boundary" in {name for name, _ in events(fresh((False, False)), Protocol())}
    took_back = fresh((False,))._replace(decision=Decision.ABORT)
    assert not any("goes back" in name for name, _ in events(took_back, Protocol()))


def test_two_ranks_under_all_faults_at_once() -> None:
    found = explore(fresh((True, True), FAULTS), Protocol(steps=1))
    assert found.violation == "" and found.published > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "most", "staging", "states", "transitions"),
    [
        (3, 2, True, 232_611, 2_190_230),
        (2, len(FAULTS), True, 2_732_624, 16_200_239),
        (3, len(FAULTS), True, 4_956_656, 30_806_657),
        (3, len(FAULTS), False, 772_710, 3_569_261),
    ],
)
def test_three_ranks_under_faults_together(steps: int, most: int, staging: bool, states: int, transitions: int) -> None:
    """All reachable states of three ranks and two plans under all faults at once."""
    found = explore(fresh(ALL_LOAD, FAULTS, most), Protocol(staging=staging, steps=steps))
    assert (found.violation, found.finished) == ("", True)
    assert (found.states, found.transitions) == (states, transitions)


@pytest.mark.parametrize(
    ("part", "fault", "violation", "last"),
    [
        ("verify", None, invariants.HALF, "hears of the switch"),
        ("checksum", "checksum-mismatch", invariants.HALF, "hears of the switch"),
        ("dtype", "dtype-mismatch", invariants.HALF, "hears of the switch"),
        ("revision", "revision-mismatch", invariants.HALF, "hears of the switch"),
        ("promise", None, invariants.MIXED, "begins step 1"),
        ("stamps", "late-publish", invariants.HALF, "hears of an earlier publication"),
        ("fence", "coordinator-is-late", invariants.HALF, "hears of the switch"),
        ("drain", None, invariants.RELEASED, "releases the old plan"),
    ],
)
def test_a_protocol_without_one_of_its_parts_is_found_out(
    part: str, fault: str | None, violation: str, last: str
) -> None:
    found = explore(fresh(ALL_LOAD, [fault] if fault else []), Protocol(without=frozenset([part])))
    assert found.violation == violation and found.history[-1].endswith(last)
    assert any("coordinator publishes" in event for event in found.history) == (part != "stamps")


def test_every_part_is_left_out_somewhere() -> None:
    """A part that is added to the protocol needs a case above."""
    (cases,) = [
        mark.args[1]
        for mark in test_a_protocol_without_one_of_its_parts_is_found_out.pytestmark  # type: ignore[attr-defined]
    ]
    assert {case[0] for case in cases} == set(PARTS)
    with pytest.raises(UsageError, match="no part 'hope'"):
        Protocol(without=frozenset(["hope"]))


def _found_without(event: str, faults: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Exploration:
    """What is found when one event of the protocol never happens."""

    def fewer(group: Group, protocol: Protocol) -> list[tuple[str, Group]]:
        return [(name, after) for name, after in events(group, protocol) if event not in name]

    monkeypatch.setattr("easybalance_sim.simulate.rollout.explore.events", fewer)
    return explore(fresh((True, True), faults), Protocol(steps=1))


def test_a_group_that_cannot_go_on_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _found_without("another coordinator", ["coordinator-dies"], monkeypatch)
    assert found.violation == invariants.STUCK and found.history[-1] == "fault: coordinator dies"


def test_a_group_that_cannot_go_back_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _found_without(RETREAT, [], monkeypatch)
    assert found.violation == invariants.NO_WAY_BACK and found.history[-1].endswith("promises to wait")


def test_an_exploration_gives_up_where_it_is_told_to() -> None:
    found = explore(fresh(ALL_LOAD), Protocol(), most_states=500)
    assert not found.finished and 500 < found.states < 6 * 501


@pytest.mark.parametrize("seed", range(20))
@MODES
def test_random_orders_of_sixteen_ranks_settle(seed: int, staging: bool) -> None:
    walk = wander(fresh([True] * 15 + [False], ()), Protocol(steps=4, staging=staging), FAULTS, seed)
    assert walk.violation == "" and len(walk.history) > 16


def test_weights_that_are_loaded_again_are_verified_again() -> None:
    """A rank that died after publication may load wrong weights too; then it tries again."""
    lost = Group(ranks=(READY, Rank(old=False)), decision=Decision.COMMIT, boundary=0, stopped=True)
    names = {name for name, _ in events(lost.may_meet(["dtype-mismatch", "load-fails"]), Protocol())}
    assert names == {
        "rank 1 reloads the new plan",
        "fault: rank 1 loads weights of a wrong dtype",
        "fault: rank 1 cannot load",
    }
    mistyped = lost.with_rank(1, Rank(old=False, new=Weights.MISTYPED))
    ((name, again),) = events(mistyped, Protocol())
    assert name == "rank 1 finds a dtype mismatch" and again == lost and not again.failed
    assert "group forms anew" in {name for name, _ in events(lost.with_rank(1, READY), Protocol())}


def test_the_log_takes_one_decision() -> None:
    """A coordinator that is late publishes while the log is open, and no more when another one has written to it."""
    late = Group(ranks=(Rank(),), coordinator=False, late=True, boundary=1)
    assert {"the old coordinator publishes", "another coordinator reads the log"} <= {
        n for n, _ in events(late, Protocol())
    }
    replaced = late._replace(decision=Decision.ABORT)
    ((_, after),) = [event for event in events(replaced, Protocol()) if "old coordinator" in event[0]]
    assert (after.decision, after.late) == (Decision.ABORT, False)


def test_random_orders_differ_and_can_be_repeated() -> None:
    start, protocol = fresh([True] * 6), Protocol()
    walks = [wander(start, protocol, FAULTS, seed) for seed in range(40)]
    assert wander(start, protocol, FAULTS, 7) == walks[7]
    assert {walk.published for walk in walks} == {True, False}
    assert {walk.faults for walk in walks} >= {0, 1, 2}
    assert all(walk.faults == sum(map(is_fault, walk.history)) for walk in walks)


def test_random_orders_find_a_broken_protocol() -> None:
    walks = [wander(fresh([True] * 6), Protocol(without=frozenset(["drain"])), (), seed) for seed in range(10)]
    assert invariants.RELEASED in {walk.violation for walk in walks}


def test_faults_happen_once_and_no_more_than_asked_for() -> None:
    def dies(start: Group) -> Group:
        return next(after for name, after in events(start, Protocol()) if name == "fault: rank 1 dies")

    lost = dies(fresh((True, True), ["rank-dies-before-publish"]))
    assert lost.faults == () and lost.stopped and lost.ranks[1] == Rank(alive=False, old=False)
    assert dies(fresh((True, True), FAULTS, 1)).faults == ()
    assert len(dies(fresh((True, True), FAULTS)).faults) == len(FAULTS) - 1


READY = Rank(new=Weights.VERIFIED, told=Told.COMMITTED)


@pytest.mark.parametrize(
    ("group", "violation"),
    [
        (Group(ranks=(Rank(), Rank()), running=((0, -1),)), ""),
        (Group(ranks=(READY, Rank(new=Weights.VERIFIED)), running=((1, 0),)), invariants.MIXED),
        (Group(ranks=(READY, Rank()), running=((1, -1),)), invariants.UNREADY),
        (Group(ranks=(READY, Rank(new=Weights.UNSOUND)), running=((1, -1),)), invariants.UNREADY),
        (Group(ranks=(Rank(old=False), Rank()), running=((-1, 0),)), invariants.RELEASED),
        (Group(ranks=(READY, Rank(new=Weights.LOADED)), decision=Decision.COMMIT), invariants.HALF),
        (Group(ranks=(READY, READY), decision=Decision.OPEN), invariants.HALF),
        (Group(ranks=(READY, READY), decision=Decision.COMMIT), ""),
    ],
)
def test_invariants_of_a_state(group: Group, violation: str) -> None:
    assert invariants.broken(group) == violation


PLANS = {OLD: np.array([[0, 1], [2, 3], [0, 2]]), NEW: np.array([[3, 1], [2, 0], [0, 1]])}
"""[ranks, slots] the expert in each slot; every rank loads something, every expert has a replica."""


@pytest.mark.parametrize("step", [*itertools.product((OLD, NEW, NOT_BEGUN), repeat=3)])
def test_without_a_violation_each_assignment_finds_one_ready_replica(step: tuple[int, ...]) -> None:
    """The invariants of steps in terms of two real plans: senders pick a slot by their generation's table, receivers
    look the slot up in theirs, and must hold what is in it."""
    for held in itertools.product(((), (OLD,), (NEW,), (OLD, NEW)), repeat=3):
        ranks = [Rank(old=OLD in one, new=Weights.VERIFIED if NEW in one else Weights.NONE) for one in held]
        group = Group(ranks=tuple(ranks), running=(step,), decision=Decision.COMMIT)
        if invariants.broken(group) in (invariants.MIXED, invariants.RELEASED, invariants.UNREADY):
            continue
        assert all(
            _served_once(expert, sender, step, held) for sender in step if sender != NOT_BEGUN for expert in range(4)
        )


def _served_once(expert: int, sender: int, step: tuple[int, ...], held: Sequence[Collection[int]]) -> bool:
    """Whether any replica that the sender may pick is one that the receiver serves, ready, as that expert."""
    slots = np.argwhere(PLANS[sender] == expert)
    tables = [sender if receiver == NOT_BEGUN else receiver for receiver in step]
    return len(slots) > 0 and all(
        tables[rank] in held[rank] and PLANS[tables[rank]][rank, slot] == expert for rank, slot in slots
    )


def test_the_documented_numbers_of_states_are_those_found() -> None:
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    alone = [
        explore(fresh(ALL_LOAD, [fault]), Protocol()).states
        for fault in ("rank-dies-after-publish", "coordinator-dies")
    ]
    for states in (explore(fresh(ALL_LOAD), Protocol()).states, *alone):
        assert f"{states:,}" in text
