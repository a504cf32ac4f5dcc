"""The points of a sweep: slots per rank from zero redundancy upwards, as far as ranks and memory hold them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import IntArray, frozen
from easybalance_sim.errors import UsageError

DEFAULT_REDUNDANCY = (0, 1, 2, 3, 4)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """slots_per_rank: int64[R] · extra: slots per rank beyond the fewest that hold the experts."""

    slots_per_rank: IntArray
    extra: int

    @property
    def slots(self) -> int:
        """P."""
        return int(self.slots_per_rank.sum())

    @property
    def most(self) -> int:
        """Slots of the rank that has most."""
        return int(self.slots_per_rank.max())


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the user asked for: slots per rank, else redundancy (slots per rank beyond the fewest), else the default."""

    slots_per_rank: tuple[int, ...] = ()
    redundancy: tuple[int, ...] = ()

    def counts(self, fewest: int) -> list[int]:
        """Slots per rank, rising, each once."""
        extra = self.redundancy or DEFAULT_REDUNDANCY
        return sorted(set(self.slots_per_rank or (fewest + more for more in extra)))


def zero_redundancy(experts: int, ranks: int) -> Layout:
    """E//R or E//R + 1 slots per rank; one slot each when there are fewer experts than ranks."""
    even = np.full(ranks, max(experts // ranks, 1))
    if experts > ranks:
        even[: experts % ranks] += 1
    return Layout(slots_per_rank=frozen(even, np.int64), extra=0)


def layouts(experts: int, ranks: int, wanted: Wanted, most: int) -> tuple[list[Layout], list[int]]:
    """The points, zero redundancy first, and the slots per rank that were asked for but cannot be.

    most: slots that the memory of a rank holds. A rank has at most one slot per expert.
    Raises `UsageError` when the memory does not hold every expert once, or nothing that was asked for can be.
    """
    first = zero_redundancy(experts, ranks)
    if first.most > most:
        raise UsageError(
            f"the memory of a GPU holds {most} slots, {ranks} ranks need {first.most} each for {experts} experts",
            where="cluster",
            fix="take more ranks, or a GPU with more memory",
        )
    asked = wanted.counts(first.most)
    able = [count for count in asked if first.most <= count <= min(most, experts)]
    if not able:
        raise UsageError(
            f"slots per rank can be {first.most} to {min(most, experts)}, not {', '.join(map(str, asked))}",
            where="--slots-per-rank" if wanted.slots_per_rank else "--redundancy",
        )
    found = [first]
    for count in able:
        layout = Layout(slots_per_rank=frozen(np.full(ranks, count), np.int64), extra=count - first.most)
        # Where ranks do not divide the experts, "0 more" is the uneven layout that comes first.
        if layout.slots > first.slots and (layout.extra or wanted.slots_per_rank):
            found.append(layout)
    return found, [count for count in asked if count not in able]
