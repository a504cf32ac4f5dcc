from __future__ import annotations

import pytest

from easybalance_sim.simulate.rollout import invariants
from easybalance_sim.simulate.rollout.explore import explore, wander
from easybalance_sim.simulate.rollout.protocol import FAULTS, Protocol, events
from easybalance_sim.simulate.rollout.state import Decision, Group, Rank, Told, Weights, fresh


@pytest.mark.parametrize("staging", [True, False], ids=["staging", "in-place"])
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_no_order_of_events_breaks_an_invariant(fault: str | None, staging: bool) -> None:
    found = explore(3, Protocol(staging=staging), [fault] if fault else [])
    assert (found.violation, found.history) == ("", ())
    assert found.states > 1_000 and 0 < found.published < found.settled


def test_the_number_of_states_is_known() -> None:
    """A change of the protocol shows in these counts."""
    found = explore(3, Protocol(), [])
    assert (found.states, found.transitions, found.settled, found.published) == (16_100, 64_971, 106, 25)


def test_two_ranks_under_all_faults_at_once() -> None:
    found = explore(2, Protocol(steps=2), FAULTS)
    assert found.violation == "" and found.published > 0


@pytest.mark.slow
@pytest.mark.parametrize("staging", [True, False], ids=["staging", "in-place"])
def test_three_ranks_under_all_faults_at_once(staging: bool) -> None:
    assert explore(3, Protocol(staging=staging, steps=2), FAULTS).violation == ""


@pytest.mark.parametrize(
    ("part", "violation", "last"),
    [
        ("verify", invariants.HALF, "hears of the switch"),
        ("promise", invariants.MIXED, "begins step 1"),
        ("drain", invariants.RELEASED, "releases the old plan"),
    ],
)
def test_a_protocol_without_one_of_its_parts_is_found_out(part: str, violation: str, last: str) -> None:
    found = explore(3, Protocol(**{part: False}), [])
    assert found.violation == violation and found.history[-1].endswith(last)
    assert "coordinator publishes" in found.history


def test_a_group_that_cannot_go_on_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_takeover(group: Group, protocol: Protocol) -> list[tuple[str, Group]]:
        return [(name, after) for name, after in events(group, protocol) if "another coordinator" not in name]

    monkeypatch.setattr("easybalance_sim.simulate.rollout.explore.events", no_takeover)
    found = explore(2, Protocol(steps=1), ["coordinator-dies"])
    assert found.violation == invariants.STUCK and found.history[-1] == "fault: coordinator dies"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("staging", [True, False], ids=["staging", "in-place"])
def test_random_orders_of_sixteen_ranks_settle(seed: int, staging: bool) -> None:
    violation, count = wander(16, Protocol(steps=4, staging=staging), FAULTS, seed)
    assert violation == "" and count > 16


def test_faults_happen_once() -> None:
    lost = next(after for name, after in events(fresh(2, ("rank-dies",)), Protocol()) if name == "fault: rank 1 dies")
    assert lost.faults == () and lost.stopped and lost.ranks[1] == Rank(alive=False, old=False)


READY = Rank(new=Weights.VERIFIED, told=Told.COMMITTED)


@pytest.mark.parametrize(
    ("group", "violation"),
    [
        (Group(ranks=(Rank(), Rank()), running=((0, -1),)), ""),
        (Group(ranks=(READY, Rank(new=Weights.VERIFIED)), running=((1, 0),)), invariants.MIXED),
        (Group(ranks=(READY, Rank()), running=((1, -1),)), invariants.UNREADY),
        (Group(ranks=(Rank(old=False), Rank()), running=((-1, 0),)), invariants.RELEASED),
        (Group(ranks=(READY, Rank(new=Weights.LOADED)), decision=Decision.COMMIT), invariants.HALF),
        (Group(ranks=(READY, READY), decision=Decision.OPEN), invariants.HALF),
        (Group(ranks=(READY, READY), decision=Decision.COMMIT), ""),
    ],
)
def test_invariants_of_a_state(group: Group, violation: str) -> None:
    assert invariants.broken(group) == violation
