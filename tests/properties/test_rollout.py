"""No random order of events of a group of any size breaks an invariant, whatever fails."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.simulate.rollout.explore import explore, wander
from easybalance_sim.simulate.rollout.faults import FAULTS, is_fault
from easybalance_sim.simulate.rollout.protocol import Protocol
from easybalance_sim.simulate.rollout.state import fresh

FAULT_LISTS = st.lists(st.sampled_from(FAULTS), unique=True)
PROTOCOLS = st.builds(
    Protocol, steps=st.integers(1, 6), in_flight=st.integers(1, 4), staging=st.booleans()
)  # fmt: skip


@given(st.lists(st.booleans(), min_size=1, max_size=40), PROTOCOLS, FAULT_LISTS, st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_random_orders_of_any_group_settle(loads: list[bool], protocol: Protocol, faults: list[str], seed: int) -> None:
    walk = wander(fresh(loads), protocol, faults, seed)
    assert walk.violation == ""
    assert walk.faults == sum(map(is_fault, walk.history)) <= min(3, len(faults))
    loaded = {event for event in walk.history if event.endswith(" loads")}
    assert loaded <= {f"rank {rank} loads" for rank, has in enumerate(loads) if has}
    if walk.published and walk.faults == 0:
        assert len(loaded) == sum(loads)


@given(
    st.lists(st.booleans(), min_size=1, max_size=2), st.integers(1, 2), st.integers(1, 2), st.booleans(), FAULT_LISTS
)
@settings(max_examples=25, deadline=None)
def test_no_order_of_a_small_group_breaks_an_invariant(
    loads: list[bool], steps: int, in_flight: int, staging: bool, faults: list[str]
) -> None:
    protocol = Protocol(steps=steps, in_flight=in_flight, staging=staging)
    found = explore(fresh(loads, faults, 2), protocol)
    assert (found.violation, found.finished) == ("", True)
    assert 0 < found.published < found.settled <= found.states
