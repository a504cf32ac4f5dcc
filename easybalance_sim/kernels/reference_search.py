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
FloatArray = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

SWAPS_OF_TEN = 7
"""Proposals that swap two slots; the others give a slot of a replicated expert to another expert."""
HOPE, SWAP_LUCK, HAND_OVER_LUCK, CERTAIN_SLOTS = 8.0, 90.0, 150.0, 36
"""When a proposal is refused unseen: see `Walk.hopeless`."""
PROPOSALS_PER_COOLING = 64
COLD_SHARE = 20
MANY_EXPERTS, HEAT_OF_MANY = 64, 1.5
"""Layers with more experts start hotter: on mixtures of 8 topics over 256 experts (seeds 100 to 102) that takes a tenth
of the held-out P99 excess away at equal time; on milder and on richer mixtures it changes nothing."""
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
    A cold descent (a twentieth of the proposals) shows how rugged the layer is; its remaining excess, half as much
    again for many experts, sets the start temperature of the annealing, which cools a hundredfold. Most proposals of a
    cooled walk cannot be taken: those that an estimate calls hopeless are refused before their windows are looked at.
    """
    for layer in range(len(start)):
        walk = Walk(
            rank_of_slot, tokens[layer], pace, slope, active, per_step, held[layer], price, most_moves, seed + layer
        )
        cold, low = walk.anneal(start[layer], max(FEWEST_COLD, proposals // COLD_SHARE), 1e-4, 1e-6)
        heat = HEAT_OF_MANY if walk.experts > MANY_EXPERTS else 1.0
        hot = min(max(heat * (low / (tokens.shape[2] * len(pace)) - 1.0), 1e-3), 0.1)
        best, value = walk.anneal(cold, proposals, hot, hot / 100)
        out[layer], lowest[layer] = (best, value) if value <= low else (cold, low)


class Walk:
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
            changed = self.propose(slots, proposal % 10 < SWAPS_OF_TEN)
            if changed is None or not self._allowed(slots, changed) or self.hopeless(slots, changed, temperature):
                continue
            delta = self._value(changed) - value
            if delta > 0 and self._chance() >= math.exp(-delta / temperature):
                continue
            slots, value = changed, value + delta
            if value < lowest * 0.9999995:
                best, lowest = slots.copy(), value
        return best, lowest

    def load(self, slots: Ints) -> float:
        """F of `slots`."""
        return objective(slots, self.rank_of_slot, self.tokens, self.pace, self.slope, self.active, self.per_step)

    def hopeless(self, slots: Ints, changed: Ints, temperature: float) -> bool:
        """Whether the change would all but surely be refused.

        With d[r] the change of rank r's load, F changes by about 28 mean load^6 · sum_r |d[r]|², which is above zero,
        and by the slopes 8 load[r]^7 · d[r]. What would rise by more than 8 temperatures even when the slopes point the
        right way is hopeless. Loads of a window add up to the same after a swap, so the part of the slope that is
        proportional to the load does not count. In small problems the estimate is poor and time is cheap.
        """
        if len(slots) <= CERTAIN_SLOTS:
            return False
        before, after = self._loads(slots), self._loads(changed)
        windows = max(1, int(np.count_nonzero(before.max(axis=0))))
        unit = (before.sum() / self.ranks / windows) ** 6
        lean = ((before * (before**6 - unit)) ** 2).sum(axis=1)
        step = ((after - before) ** 2).sum(axis=1)
        toll = self.price * (self._moves(changed) - self._moves(slots))
        least = 28 * unit * step.sum() + toll - HOPE * temperature
        luck = SWAP_LUCK if np.count_nonzero(slots != changed) == 2 else HAND_OVER_LUCK
        return bool(least > 0 and least * least > luck * float(lean @ step))

    def _loads(self, slots: Ints) -> FloatArray:
        """load float64[R, T]."""
        x = self.tokens[slots] / np.bincount(slots, minlength=self.experts)[slots, None]
        cost = self.slope * x + self.active * (1 - np.exp(-x * self.per_step))
        load = np.zeros((self.ranks, self.tokens.shape[1]))
        np.add.at(load, self.rank_of_slot, cost)
        return load * self.pace[:, None]

    def propose(self, slots: Ints, swap: bool) -> Ints | None:
        """Two slots of different ranks exchanged, or one slot of a replicated expert given to another expert."""
        drawn = self._next()
        first, rest = ((drawn >> 32) * len(slots)) >> 32, drawn & 0xFFFFFFFF
        rank, expert = self.rank_of_slot[first], slots[first]
        changed = slots.copy()
        if swap:
            second = (rest * len(slots)) >> 32
            other = slots[second]
            if rank == self.rank_of_slot[second] or expert == other:
                return None
            changed[first], changed[second] = other, expert
            return changed if self._once_per_rank(changed) else None
        other = np.int32((rest * self.experts) >> 32)
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

    def _chance(self) -> float:
        """0 to 1, by other bits of the state than those that made the proposal."""
        return ((self.state * 11400714819323198485 & 0xFFFFFFFFFFFFFFFF) >> 32) * 2.0**-32

    def _next(self) -> int:
        """xorshift64*: 64 random bits."""
        x = self.state
        x ^= x >> 12
        x = (x ^ (x << 25)) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 27
        self.state = x
        return (x * 2685821657736338717) & 0xFFFFFFFFFFFFFFFF
