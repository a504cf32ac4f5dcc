"""The placement search as naive loops: the specification of `numba_search`.

Objective: F = sum over windows t and ranks r of load[r, t]^8, a smooth stand-in for "the busiest rank, in the worst
windows". load[r, t] = pace[r] · sum over the slots of the rank; a slot of expert e with c replicas costs
slope·x + active·(1 - exp(-x·per_step[t])) with x = tokens[e, t] / c: tokens computed, plus the expected active
experts when a window's tokens fall into its steps at random.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]

SWAP_SHARE = 3006477107
"""Of 2^32: proposals that swap two slots (0.7); the others give a slot of a replicated expert to another expert."""
PROPOSALS_PER_COOLING = 64
COLD_SHARE = 20
FEWEST_COLD = 2000


def objective(
    slots: Ints, rank_of_slot: Ints, tokens: Floats, pace: Floats, slope: float, active: float, per_step: Floats
) -> float:
    """F of slots int32[P] for tokens float32[E, T]."""
    replicas = np.bincount(slots, minlength=len(tokens))
    total = 0.0
    for window in range(tokens.shape[1]):
        load = [0.0] * len(pace)
        for slot, rank in zip(slots.tolist(), rank_of_slot.tolist(), strict=True):
            x = float(tokens[slot, window]) / int(replicas[slot])
            load[rank] += slope * x + active * (1 - math.exp(-x * float(per_step[window])))
        total += sum((value * float(speed)) ** 8 for value, speed in zip(load, pace, strict=True))
    return total


def search(
    start: Ints,
    rank_of_slot: Ints,
    tokens: Floats,
    pace: Floats,
    slope: float,
    active: float,
    per_step: Floats,
    held: npt.NDArray[np.bool_],
    price: float,
    most_moves: int,
    proposals: int,
    seed: int,
    out: Ints,
    lowest: npt.NDArray[np.float64],
) -> None:
    """Anneal every layer on its own; deterministic per seed.

    In: start int32[L, P] without an expert twice on a rank · rank_of_slot int32[P] · tokens float32[L, E, T] ·
    pace float32[R] cost of a unit of load (1 / speed) · held bool[L, R, E] experts that a rank has without moving ·
    price added per slot that must be fetched · most_moves per layer · proposals per layer.
    Out: out int32[L, P] the best placement seen · lowest float64[L] its F + price · moves.
    A cold descent (a twentieth of the proposals) shows how rugged the layer is; its remaining excess sets the start
    temperature of the annealing, which cools a hundredfold.
    """
    for layer in range(len(start)):
        walk = _Walk(
            rank_of_slot, tokens[layer], pace, slope, active, per_step, held[layer], price, most_moves, seed + layer
        )
        cold, low = walk.anneal(start[layer], max(FEWEST_COLD, proposals // COLD_SHARE), 1e-4, 1e-6)
        hot = min(max(low / (tokens.shape[2] * len(pace)) - 1.0, 1e-3), 0.1)
        best, value = walk.anneal(cold, proposals, hot, hot / 100)
        out[layer], lowest[layer] = (best, value) if value <= low else (cold, low)


class _Walk:
    """One layer's random walk."""

    def __init__(
        self, rank_of_slot: Ints, tokens: Floats, pace: Floats, slope: float, active: float, per_step: Floats,
        held: npt.NDArray[np.bool_], price: float, most_moves: int, seed: int,
    ) -> None:  # fmt: skip
        self.rank_of_slot, self.experts, self.ranks = rank_of_slot, len(tokens), len(pace)
        self.held, self.price, self.most_moves = held, price, most_moves
        self.state = (seed * 2654435769 + 88172645463325252) & 0xFFFFFFFFFFFFFFFF
        self.tokens, self.pace, self.slope, self.active, self.per_step = tokens, pace, slope, active, per_step

    def anneal(self, start: Ints, proposals: int, hot: float, cold: float) -> tuple[Ints, float]:
        """Best placement seen from `start`, and its F + price · moves; temperatures are shares of F / R."""
        slots = start.copy()
        value = self._value(slots)
        best, lowest = slots.copy(), value
        temperature = hot * self.load(slots) / self.ranks
        cooling = (cold / hot) ** (1.0 / max(1, proposals // PROPOSALS_PER_COOLING))
        for proposal in range(proposals):
            if proposal % PROPOSALS_PER_COOLING == 0:
                temperature *= cooling
            changed = self._propose(slots)
            if changed is None or not self._allowed(slots, changed):
                continue
            delta = self._value(changed) - value
            if delta > 0 and self._next() * 2.0**-32 >= math.exp(-delta / temperature):
                continue
            slots, value = changed, value + delta
            if value < lowest * 0.9999995:
                best, lowest = slots.copy(), value
        return best, lowest

    def load(self, slots: Ints) -> float:
        """F of `slots`."""
        return objective(slots, self.rank_of_slot, self.tokens, self.pace, self.slope, self.active, self.per_step)

    def _propose(self, slots: Ints) -> Ints | None:
        """Two slots of different ranks exchanged, or one slot of a replicated expert given to another expert."""
        first = self._below(len(slots))
        rank, expert = self.rank_of_slot[first], slots[first]
        changed = slots.copy()
        if self._next() < SWAP_SHARE:
            second = self._below(len(slots))
            other = slots[second]
            if rank == self.rank_of_slot[second] or expert == other:
                return None
            changed[first], changed[second] = other, expert
            return changed if self._once_per_rank(changed) else None
        other = np.int32(self._below(self.experts))
        if other == expert or np.count_nonzero(slots == expert) < 2:
            return None
        changed[first] = other
        return changed if self._once_per_rank(changed) else None

    def _once_per_rank(self, slots: Ints) -> bool:
        return len(set(zip(self.rank_of_slot.tolist(), slots.tolist(), strict=True))) == len(slots)

    def _allowed(self, slots: Ints, changed: Ints) -> bool:
        after = self._moves(changed)
        return after <= self.most_moves or after <= self._moves(slots)

    def _moves(self, slots: Ints) -> int:
        return int(np.count_nonzero(~self.held[self.rank_of_slot, slots]))

    def _value(self, slots: Ints) -> float:
        return self.load(slots) + self.price * self._moves(slots)

    def _next(self) -> int:
        """xorshift64*: 32 random bits."""
        x = self.state
        x ^= x >> 12
        x = (x ^ (x << 25)) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self.state = x
        return ((x * 2685821657736338717) & 0xFFFFFFFFFFFFFFFF) >> 32

    def _below(self, bound: int) -> int:
        return (self._next() * bound) >> 32
