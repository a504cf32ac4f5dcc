"""Settling of small placements as naive loops: the specification of `numba_settle`.

Objective: the mean over windows of the busiest rank, which is what a plan is judged by. `search` follows a smooth
stand-in that can be updated cheaply; where a placement has few slots the real thing is affordable, from many starts.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

HOT, COLD = 0.1, 1e-4
"""Temperatures of a walk, as shares of the value it starts from."""


def busiest(slots: Ints, rank_of_slot: Ints, cost: Floats, weight: Floats, pace: Floats) -> float:
    """Sum over windows of weight · the busiest rank; see `settle`."""
    replicas = np.bincount(slots, minlength=len(cost))
    load = np.zeros((len(pace), len(weight)))
    for slot, rank in zip(slots.tolist(), rank_of_slot.tolist(), strict=True):
        load[rank] += cost[slot, replicas[slot] - 1]
    worst = (load * pace[:, None]).max(axis=0)
    return float(sum(w * v for w, v in zip(weight.tolist(), worst.tolist(), strict=True)))


def settle(
    start: Ints, rank_of_slot: Ints, cost: Floats, weight: Floats, pace: Floats, walks: int, proposals: int, seed: int,
    out: Ints,
) -> float:  # fmt: skip
    """Anneal one layer from `start` several times; deterministic per seed.

    In: start int32[P] without an expert twice on a rank · rank_of_slot int32[P] rising · cost float64[E, C, T] of a
    slot of an expert with c + 1 replicas · weight float64[T] · pace float64[R] cost of a unit of load.
    Out: out int32[P] the best placement seen, whose value is returned. A proposal exchanges two slots, gives one slot
    to another expert, or does both: numbers of replicas that differ in several experts are reached that way.
    """
    state = _Random(seed)
    first = busiest(start, rank_of_slot, cost, weight, pace)
    lowest, out[:] = first, start
    for _ in range(walks):
        slots, value, temperature = start.copy(), first, HOT * first
        for _ in range(proposals):
            temperature *= (COLD / HOT) ** (1.0 / proposals)
            trial = _proposed(slots, len(cost), state)
            if not _legal(trial, rank_of_slot, len(cost)):
                continue
            new = busiest(trial, rank_of_slot, cost, weight, pace)
            if new > value and state.next() * 2.0**-32 >= math.exp((value - new) / temperature):
                continue
            slots, value = trial, new
            if value < lowest * (1 - 1e-9):
                lowest, out[:] = value, slots
    return lowest


def _proposed(slots: Ints, experts: int, state: _Random) -> Ints:
    trial, kind = slots.copy(), state.below(10)
    if kind >= 4:
        place = state.below(len(slots))
        trial[place] = state.below(experts)
    if kind < 4 or kind >= 8:
        first, second = state.below(len(slots)), state.below(len(slots))
        trial[first], trial[second] = trial[second], trial[first]
    return trial


def _legal(slots: Ints, rank_of_slot: Ints, experts: int) -> bool:
    once = len(set(zip(rank_of_slot.tolist(), slots.tolist(), strict=True))) == len(slots)
    return once and len(set(slots.tolist())) == experts


class _Random:
    """xorshift64*."""

    def __init__(self, seed: int) -> None:
        self.state = (seed * 2654435769 + 88172645463325252) & 0xFFFFFFFFFFFFFFFF

    def next(self) -> int:
        """32 random bits."""
        x = self.state
        x ^= x >> 12
        x = (x ^ (x << 25)) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self.state = x
        return ((x * 2685821657736338717) & 0xFFFFFFFFFFFFFFFF) >> 32

    def below(self, bound: int) -> int:
        """0 to bound - 1."""
        return (self.next() * bound) >> 32
