"""The smallest sets of moves that may be carried out on their own, each without an expert losing its last replica.

In a layer some ranks give experts up and some take experts in. A replica that is given up on one rank and needed on
another is *transferred*; further ones are *dropped* or *copied*. Every slot that falls free is filled by an arrival,
which may free a slot elsewhere, and so on: chains from a drop (or an empty slot) to a copy (or a slot that is closed),
and rings. A chain that comes back to a rank has its ring cut out: the slots of a rank are all alike. So each chain or
ring touches a rank once, and needs one buffer there; a transfer keeps the number of replicas, a drop happens only to
an expert that keeps another one. Ranks in any number, slots in any number per rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import BoolArray, Int32Array, IntArray


@dataclass(frozen=True, kw_only=True)
class Change:
    """One slot's change on one rank. arrives, leaves: experts, -1 = none · giver: the rank that gives up the replica
    that arrives, -1 = it is copied."""

    rank: int
    arrives: int
    leaves: int
    giver: int = -1


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Changes of one layer that take effect together. layer: row of the plan · ring: every slot's new expert comes from
    another slot of the exchange."""

    layer: int
    changes: tuple[Change, ...]
    ring: bool = False


def exchanges(
    before: BoolArray, after: BoolArray, node_of_rank: IntArray, stood: Int32Array | None = None
) -> list[Exchange]:
    """All exchanges from one placement to another, layer by layer.

    before, after: bool[L, R, E] experts on each rank · stood: int[L, R, E] the expert of `before` in the slot that an
    expert gets, which it replaces if the two meet in an exchange; -1 = none, None = any slot will do.
    An expert that nobody holds before is copied from outside. Every exchange may be carried out at any time and in any
    order: each expert keeps at least as many replicas as the smaller of the two placements gives it.
    """
    found: list[Exchange] = []
    for layer in range(len(before)):
        kept = None if stood is None else stood[layer]
        found += _Layer(layer, before[layer], after[layer], node_of_rank, kept).exchanges()
    return found


class _Layer:
    """The changes of one layer that are still to be put in chains."""

    def __init__(
        self, layer: int, before: BoolArray, after: BoolArray, node_of_rank: IntArray, stood: Int32Array | None
    ) -> None:
        self._layer, self._stood = layer, stood
        arrivals, departures = after & ~before, before & ~after
        self._into: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._copies: dict[int, list[int]] = defaultdict(list)
        self._starts: list[tuple[int, int]] = []
        for expert in np.flatnonzero((arrivals | departures).any(axis=0)).tolist():
            takers = np.flatnonzero(arrivals[:, expert]).tolist()
            givers = np.flatnonzero(departures[:, expert]).tolist()
            for taker, giver in _matched(takers, givers, node_of_rank):
                takers.remove(taker)
                givers.remove(giver)
                self._into[taker].append((giver, expert))
            for taker in takers:
                self._copies[taker].append(expert)
            self._starts += [(giver, expert) for giver in givers]
        gained = arrivals.sum(axis=1) - departures.sum(axis=1)
        self._starts += [(rank, -1) for rank in range(len(gained)) for _ in range(int(gained[rank]))]

    def exchanges(self) -> list[Exchange]:
        """Chains from their starts, those that end at once first; then rings are all that is left."""
        found: list[Exchange] = []
        self._starts.sort(key=lambda start: (not self._copies[start[0]], start))
        for rank, leaves in self._starts:
            found += self._chain(rank, leaves)
        for rank in sorted(self._into):
            while self._into[rank]:
                found += self._chain(rank, -1)
        return found

    def _chain(self, rank: int, leaves: int) -> list[Exchange]:
        """Follow a slot that falls free until nobody is left to move up; rings that close on the way come apart."""
        rings: list[Exchange] = []
        chain: list[Change] = []
        while True:
            at = next((place for place, one in enumerate(chain) if one.rank == rank), None)
            if at is not None:
                first = chain[at]
                rings.append(self._exchange((replace(first, leaves=leaves), *chain[at + 1 :]), ring=True))
                leaves, chain = first.leaves, chain[:at]
            if self._copies[rank]:
                arrives = self._copies[rank].pop(self._successor(rank, leaves, self._copies[rank]))
                chain.append(Change(rank=rank, arrives=arrives, leaves=leaves))
                break
            if not self._into[rank]:
                if leaves >= 0:
                    chain.append(Change(rank=rank, arrives=-1, leaves=leaves))
                break
            ready = [expert for _, expert in self._into[rank]]
            giver, expert = self._into[rank].pop(self._successor(rank, leaves, ready))
            chain.append(Change(rank=rank, arrives=expert, leaves=leaves, giver=giver))
            rank, leaves = giver, expert
        return [*rings, self._exchange(tuple(chain))] if chain else rings

    def _successor(self, rank: int, leaves: int, ready: Sequence[int]) -> int:
        """Which of the experts that are ready for a slot of the rank takes it: who stays in it, else the last."""
        if self._stood is None or leaves < 0:
            return -1
        return next((at for at, expert in enumerate(ready) if self._stood[rank, expert] == leaves), -1)

    def _exchange(self, changes: tuple[Change, ...], *, ring: bool = False) -> Exchange:
        return Exchange(layer=self._layer, changes=changes, ring=ring)


def _matched(takers: Sequence[int], givers: Sequence[int], node_of_rank: IntArray) -> list[tuple[int, int]]:
    """(taker, giver) pairs, as many as there are of the fewer, those on one node first."""
    pairs: list[tuple[int, int]] = []
    free = list(givers)
    left = []
    for taker in takers:
        near = next((giver for giver in free if node_of_rank[giver] == node_of_rank[taker]), None)
        if near is None:
            left.append(taker)
            continue
        free.remove(near)
        pairs.append((taker, near))
    return pairs + list(zip(left, free, strict=False))
