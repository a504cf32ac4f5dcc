"""States of a rollout: what each rank holds and knows, what the coordinator has decided, which steps are running.

The old plan is generation N, the new one N + 1. A rank's knowledge and weights change only by the events of `protocol`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Weights(IntEnum):
    """What a rank holds of the new generation."""

    NONE = 0
    LOADED = 1
    DAMAGED = 2
    VERIFIED = 3


class Told(IntEnum):
    """What a rank knows of the switch: nothing · the boundary, and that it must not pass it before the decision · that
    the new generation is in force from the boundary on."""

    NOTHING = 0
    PREPARED = 1
    COMMITTED = 2


class Decision(IntEnum):
    """The coordinator's durable log: still open · the new generation is published · the old one stays."""

    OPEN = 0
    COMMIT = 1
    ABORT = 2


class Rank(NamedTuple):
    """alive: it answers · old: it holds the weights of the old generation · new: of the new one · told: what it knows ·
    begun: steps that it has begun."""

    alive: bool = True
    old: bool = True
    new: Weights = Weights.NONE
    told: Told = Told.NOTHING
    begun: int = 0


class Group(NamedTuple):
    """An EP group. ranks: all of them · coordinator: it answers · decision: its log · boundary: first step of the new
    generation, -1 = none proposed · running: for each step in flight, from `ended` on, the generation (0 old, 1 new)
    with which each rank began it, -1 = not yet · ended: steps that are over · stopped: a rank died, the group runs
    nothing until it has formed anew · faults: those that may still happen · failed: a rank reported that it cannot
    adopt the new generation."""

    ranks: tuple[Rank, ...]
    coordinator: bool = True
    decision: Decision = Decision.OPEN
    boundary: int = -1
    running: tuple[tuple[int, ...], ...] = ()
    ended: int = 0
    stopped: bool = False
    faults: tuple[str, ...] = ()
    failed: bool = False

    def with_rank(self, number: int, rank: Rank) -> Group:
        """The group with one rank replaced."""
        return self._replace(ranks=(*self.ranks[:number], rank, *self.ranks[number + 1 :]))


OLD, NEW, NOT_BEGUN = 0, 1, -1


def fresh(ranks: int, faults: tuple[str, ...] = ()) -> Group:
    """`ranks` ranks that serve the old generation, before anything has happened."""
    return Group(ranks=(Rank(),) * ranks, faults=tuple(sorted(faults)))
