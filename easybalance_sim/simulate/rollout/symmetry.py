"""Ranks are alike: states that differ only in which rank is which are looked at once and counted as many times."""

from __future__ import annotations

from collections import Counter
from math import factorial

from easybalance_sim.simulate.rollout.state import Group, Rank

_Place = tuple[Rank, tuple[int, ...]]


def representative(group: Group) -> Group:
    """The same for all states that are one another with ranks renamed."""
    places = _places(group)
    order = sorted(places)
    if order == places:
        return group
    columns = (column for _, column in order)
    return group._replace(ranks=tuple(rank for rank, _ in order), running=tuple(zip(*columns, strict=True)))


def renamings(group: Group) -> int:
    """How many different states a group stands for, itself among them. Ranks that load something never take the place
    of ranks that do not."""
    count = 1
    for alike in Counter(rank.loads for rank in group.ranks).values():
        count *= factorial(alike)
    for same in Counter(_places(group)).values():
        count //= factorial(same)
    return count


def _places(group: Group) -> list[_Place]:
    """Of each rank what it holds and knows, and with which generation it began the steps that are running."""
    columns = zip(*group.running, strict=True) if group.running else ((),) * len(group.ranks)
    return list(zip(group.ranks, columns, strict=True))
