"""Every order of events of a small group, and random orders of a large one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.simulate.rollout.invariants import STUCK, broken, is_settled
from easybalance_sim.simulate.rollout.protocol import Protocol, events, is_fault
from easybalance_sim.simulate.rollout.state import Group, fresh


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """What was found. states, transitions: numbers of different ones · settled: states with all steps served by one
    generation · published: those among them on the new plan · violation: the invariant that broke first, "" when none
    did · history: the shortest order of events that leads there."""

    states: int
    transitions: int
    settled: int
    published: int
    violation: str = ""
    history: tuple[str, ...] = ()


def explore(
    ranks: int, protocol: Protocol, faults: Sequence[str], tell: Callable[[int], None] = lambda states: None
) -> Exploration:
    """All states that `ranks` ranks can reach, each of `faults` happening at most once, breadth first.

    Checks every invariant in each state and, at the end, that from each of them the group can still settle without
    further faults: on the old plan when the new one was not published, else on the new one.
    """
    start = fresh(ranks, tuple(faults))
    number = {start: 0}
    came: list[tuple[int, str]] = [(-1, "")]
    before: list[list[int]] = [[]]
    goals: list[int] = []
    queue, transitions, published = deque([start]), 0, 0
    while queue:
        group = queue.popleft()
        here = number[group]
        if violation := broken(group):
            return _found(number, transitions, goals, published, violation, _history(came, here))
        if is_settled(group, protocol.steps):
            goals.append(here)
            published += group.ranks[0].told > 0
        for event, after in events(group, protocol):
            transitions += 1
            if after not in number:
                number[after] = len(number)
                came.append((here, event))
                before.append([])
                queue.append(after)
            if not is_fault(event):
                before[number[after]].append(here)
        tell(1)
    stuck = _cannot_reach(goals, before)
    if stuck is not None:
        return _found(number, transitions, goals, published, STUCK, _history(came, stuck))
    return _found(number, transitions, goals, published, "", ())


def wander(ranks: int, protocol: Protocol, faults: Sequence[str], seed: int, most: int = 100_000) -> tuple[str, int]:
    """One random order of events until nothing more can happen: (the invariant that broke or "", events).

    A group that ends without having settled counts as `STUCK`.
    """
    rng = np.random.default_rng(seed)
    group = fresh(ranks, tuple(faults))
    for count in range(most):
        if violation := broken(group):
            return violation, count
        nexts = list(events(group, protocol))
        if not nexts:
            return ("" if is_settled(group, protocol.steps) else STUCK), count
        group = nexts[int(rng.integers(len(nexts)))][1]
    return STUCK, most


def _cannot_reach(goals: Iterable[int], before: Sequence[Sequence[int]]) -> int | None:
    """The first state from which no goal can be reached."""
    reached = np.zeros(len(before), np.bool_)
    queue = deque(goals)
    reached[list(queue)] = True
    while queue:
        for state in before[queue.popleft()]:
            if not reached[state]:
                reached[state] = True
                queue.append(state)
    left = np.flatnonzero(~reached)
    return int(left[0]) if len(left) else None


def _history(came: Sequence[tuple[int, str]], state: int) -> tuple[str, ...]:
    names = []
    while came[state][0] >= 0:
        state, event = came[state]
        names.append(event)
    return tuple(reversed(names))


def _found(
    number: dict[Group, int],
    transitions: int,
    goals: Sequence[int],
    published: int,
    violation: str,
    history: tuple[str, ...],
) -> Exploration:
    return Exploration(
        states=len(number),
        transitions=transitions,
        settled=len(goals),
        published=published,
        violation=violation,
        history=history,
    )
