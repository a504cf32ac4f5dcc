"""Every order of events of a small group, and random orders of a large one."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import BoolArray
from easybalance_sim.simulate.rollout.faults import is_fault
from easybalance_sim.simulate.rollout.invariants import NO_WAY_BACK, STUCK, broken, is_settled
from easybalance_sim.simulate.rollout.protocol import RETREAT, Protocol, actors, events, events_of
from easybalance_sim.simulate.rollout.state import Decision, Group
from easybalance_sim.simulate.rollout.symmetry import renamings, representative

MOST_STATES = 2_000_000
"""Where an exploration gives up: some 1.6 GB and a few minutes."""

MOST_STRIKES = 3
"""Faults in one random walk: with more of them hardly a large group would ever publish."""


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """What was found. states, transitions: numbers of different ones that were looked at · settled: states with all
    steps served by one generation · published: those among them on the new plan · fault_events: transitions that are
    faults · finished: False when there were more states than asked for · violation: the invariant that broke first, ""
    when none did · history: the shortest order of events that leads there."""

    states: int
    transitions: int
    settled: int
    published: int
    fault_events: int
    finished: bool = True
    violation: str = ""
    history: tuple[str, ...] = ()


@dataclass(eq=False)
class _Reached:
    """The states so far, one for all that are alike. start: where it began · number: of each state · came: the state
    that each was first reached from, -1 = none · edges: pairs (from, to) of numbers, faults left out · settled,
    published, unpublished: numbers of states · counts: of those that are reported, renamings included."""

    start: Group
    protocol: Protocol
    number: dict[Group, int] = field(default_factory=dict)
    came: array[int] = field(default_factory=lambda: array("i", [-1]))
    edges: array[int] = field(default_factory=lambda: array("i"))
    settled: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    unpublished: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def found(self, violation: str = "", state: int = -1, *, finished: bool = True) -> Exploration:
        """The outcome; state: where the violation was met."""
        names = ("states", "transitions", "settled", "published", "fault_events")
        return Exploration(
            **{name: self.counts[name] for name in names},
            finished=finished,
            violation=violation,
            history=self._history(state),
        )

    def _history(self, state: int) -> tuple[str, ...]:
        """The names of events on the way to a state, with the ranks that they befall when it is walked for real."""
        way = []
        while state > 0:
            way.append(state)
            state = self.came[state]
        names, group = [], self.start
        for number in reversed(way):
            name, group = next(
                (event, after)
                for event, after in events(group, self.protocol)
                if self.number[representative(after)] == number
            )
            names.append(name)
        return tuple(names)


def explore(
    start: Group,
    protocol: Protocol,
    tell: Callable[[int], None] = lambda states: None,
    most_states: int = MOST_STATES,
) -> Exploration:
    """All states that can be reached from `start`, breadth first, and every invariant in each of them.

    At the end: from each state the group can still settle without further faults, on the new plan when that was
    published, else on the old one. States that only rename ranks are looked at once (`symmetry`) and counted each.
    tell: called with the number of states looked at since the last call · most_states: looked at before it gives up.
    """
    reached = _Reached(start=start, protocol=protocol)
    queue = deque([representative(start)])
    reached.number[queue[0]] = 0
    while queue:
        group = queue.popleft()
        here, alike = reached.number[group], renamings(group)
        reached.counts["states"] += alike
        if violation := broken(group):
            return reached.found(violation, here)
        if here >= most_states:
            return reached.found(finished=False)
        _note(reached, group, here, alike)
        for event, after in events(group, protocol):
            _follow(reached, here, alike, event, representative(after), queue)
        tell(1)
    return _judged(reached)


def _note(reached: _Reached, group: Group, here: int, alike: int) -> None:
    committed = group.decision == Decision.COMMIT
    if not committed:
        reached.unpublished.append(here)
    if is_settled(group, reached.protocol.steps):
        reached.settled.append(here)
        reached.counts["settled"] += alike
        if committed:
            reached.published.append(here)
            reached.counts["published"] += alike


def _follow(reached: _Reached, here: int, alike: int, event: str, after: Group, queue: deque[Group]) -> None:
    reached.counts["transitions"] += alike
    there = reached.number.setdefault(after, len(reached.came))
    if there == len(reached.came):
        reached.came.append(here)
        queue.append(after)
    if is_fault(event):
        reached.counts["fault_events"] += alike
    else:
        reached.edges.extend((here, there))


def _judged(reached: _Reached) -> Exploration:
    """What the whole graph says: where nothing leads to a settled state, or nothing leads back."""
    before = _Predecessors(reached.edges, len(reached.came))
    stuck = np.flatnonzero(~before.of(reached.settled))
    if len(stuck):
        return reached.found(STUCK, int(stuck[0]))
    back = before.of(sorted(set(reached.settled) - set(reached.published)))
    lost = [state for state in reached.unpublished if not back[state]]
    return reached.found(NO_WAY_BACK, lost[0]) if lost else reached.found()


class _Predecessors:
    """Edges the other way round. edges: pairs (from, to) · states: how many there are."""

    def __init__(self, edges: Sequence[int], states: int) -> None:
        pairs = np.array(edges, np.int32).reshape(-1, 2)
        order = np.argsort(pairs[:, 1], kind="stable")
        self.sources = pairs[order, 0]
        self.first = np.searchsorted(pairs[order, 1], np.arange(states + 1))
        self.states = states

    def of(self, goals: Iterable[int]) -> BoolArray:
        """bool[states] from which states some goal can be reached; goals among them."""
        reached = np.zeros(self.states, np.bool_)
        front = np.fromiter(goals, np.int64)
        while len(front):
            reached[front] = True
            spans = [self.sources[self.first[state] : self.first[state + 1]] for state in front]
            coming = np.unique(np.concatenate(spans))
            front = coming[~reached[coming]]
        return reached


@dataclass(frozen=True, kw_only=True)
class Walk:
    """One random order of events. violation: the invariant that broke, "" when none did · history: all events ·
    published: it ended on the new plan · faults: how many happened."""

    violation: str
    history: tuple[str, ...]
    published: bool
    faults: int


def wander(start: Group, protocol: Protocol, faults: Sequence[str], seed: int) -> Walk:
    """Random events until nothing more can happen; some of `faults` (0 to `MOST_STRIKES`) strike at random moments.

    A group that ends without having settled counts as `STUCK`.
    """
    rng = np.random.default_rng(seed)
    due = _moments(faults, _usual_length(start, protocol), rng)
    group, history, violation = start, list[str](), ""
    while not (violation := broken(group)):
        group = group.may_meet([*group.faults, *due.pop(len(history), ())])
        event = _one(group, protocol, rng)
        if event is None:
            violation = "" if is_settled(group, protocol.steps) else STUCK
            break
        history.append(event[0])
        group = event[1]
    return Walk(
        violation=violation,
        history=tuple(history),
        published=group.decision == Decision.COMMIT,
        faults=sum(map(is_fault, history)),
    )


def _moments(faults: Sequence[str], length: int, rng: np.random.Generator) -> dict[int, list[str]]:
    """Before which event each fault becomes possible, those left out that are not to happen."""
    due: dict[int, list[str]] = {}
    count = int(rng.integers(min(len(faults), MOST_STRIKES) + 1))
    for which in rng.choice(len(faults), count, replace=False) if count else ():
        due.setdefault(int(rng.integers(length)), []).append(faults[which])
    return due


def _usual_length(start: Group, protocol: Protocol) -> int:
    """Events of a rollout without faults: per rank load, verify, promise, hear, release and its steps."""
    return len(start.ranks) * (5 + protocol.steps) + protocol.steps + 2


def _one(group: Group, protocol: Protocol, rng: np.random.Generator) -> tuple[str, Group] | None:
    """Something that a random actor can do next, a fault that is due first; None when nobody can do anything.

    A coordinator that may take a plan back at any moment would hardly ever publish on a large group: it does so with a
    probability of one in as many events as a rollout has.
    """
    retreats: list[tuple[str, Group]] = []
    for actor in rng.permutation(actors(group)):
        nexts = list(events_of(int(actor), group, protocol))
        struck = [event for event in nexts if is_fault(event[0])]
        rare = [] if group.failed or group.stopped else [event for event in nexts if event[0] == RETREAT]
        if rare and rng.random() > 1 / _usual_length(group, protocol):
            retreats += rare
            nexts = [event for event in nexts if event[0] != RETREAT]
        if chosen := struck or nexts:
            return chosen[int(rng.integers(len(chosen)))]
    return retreats[0] if retreats else None
