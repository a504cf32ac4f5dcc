"""States of a rollout: what each rank holds and knows, what the coordinator has decided, which steps are running.

The old plan is generation N, the new one N + 1. A rank's knowledge and weights change only by the events of `protocol`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class Weights(IntEnum):
    """What a rank holds of the new generation: nothing · all of it, not verified · bytes that are damaged, of another
    dtype, of another model revision · all of it, verified · one of the three wrong kinds, taken for sound by a protocol
    that leaves that check out."""

    NONE = 0
    LOADED = 1
    DAMAGED = 2
    MISTYPED = 3
    STALE = 4
    VERIFIED = 5
    UNSOUND = 6


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
    begun: steps that it has begun · loads: the new generation has experts that it must load; a rank without such ones
    holds both generations from the start."""

    alive: bool = True
    old: bool = True
    new: Weights = Weights.NONE
    told: Told = Told.NOTHING
    begun: int = 0
    loads: bool = True

    @property
    def at_rest(self) -> Weights:
        """What it holds of the new generation beside the whole old one, before any loading."""
        return Weights.NONE if self.loads else Weights.VERIFIED


class Group(NamedTuple):
    """An EP group. ranks: all of them · coordinator: it answers · decision: its log · boundary: first step of the new
    generation, -1 = none proposed · running: for each step in flight, from `ended` on, the generation (0 old, 1 new)
    with which each rank began it, -1 = not yet · ended: steps that are over · stopped: a rank died, the group runs
    nothing until it has formed anew · late: a coordinator that was taken for dead is about to publish · faults: those
    that may still happen, `chances` of them at most · failed: a rank reported that it cannot adopt the new generation.
    """

    ranks: tuple[Rank, ...]
    coordinator: bool = True
    decision: Decision = Decision.OPEN
    boundary: int = -1
    running: tuple[tuple[int, ...], ...] = ()
    ended: int = 0
    stopped: bool = False
    late: bool = False
    faults: tuple[str, ...] = ()
    chances: int = 0
    failed: bool = False

    def with_rank(self, number: int, rank: Rank) -> Group:
        """The group with one rank replaced."""
        return self._replace(ranks=(*self.ranks[:number], rank, *self.ranks[number + 1 :]))

    def may_meet(self, faults: Sequence[str], most: int | None = None) -> Group:
        """The group before which `faults` lie, each at most once, at most `most` of them in one history (all)."""
        chances = len(faults) if most is None else min(most, len(faults))
        return self._replace(faults=tuple(sorted(faults)) if chances else (), chances=chances)


OLD, NEW, NOT_BEGUN = 0, 1, -1


def fresh(loads: Sequence[bool], faults: Sequence[str] = (), most_faults: int | None = None) -> Group:
    """A group that serves the old generation, before anything has happened; loads: whether each rank has to load
    something, the others as of `Group.may_meet`."""
    ranks = tuple(Rank(new=Rank(loads=has).at_rest, loads=bool(has)) for has in loads)
    return Group(ranks=ranks).may_meet(faults, most_faults)
