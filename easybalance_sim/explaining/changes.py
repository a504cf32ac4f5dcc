"""What one replica fewer or more of an expert would do to a layer, every slot stays filled.

A slot that is given up goes to the expert that helps most there; an additional replica takes the slot of an expert that
has another one. Replicas share evenly. Candidates are ranked by the load of all windows, the best of them judged by the
mean over windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.expected import even_imbalance, even_imbalances

JUDGED = 32
"""Candidates that are judged window by window."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """rank: where a slot changes hands · leaves, comes: experts · mean, p99: rank imbalance over windows after it."""

    rank: int
    leaves: int
    comes: int
    mean: float
    p99: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """One layer of a plan under its load. plan: of that layer alone · tokens: int64[W, 1, E] · speed: float64[R]."""

    plan: Plan
    tokens: IntArray
    speed: FloatArray

    @classmethod
    def of(cls, plan: Plan, row: int, tokens: IntArray, speed: FloatArray) -> Layer:
        """Row `row` of a whole plan; tokens: int64[W, L, E]."""
        one = replace(plan, expert_of_slot=plan.expert_of_slot[row : row + 1])
        return cls(plan=one, tokens=tokens[:, row : row + 1], speed=speed)

    def imbalance(self) -> tuple[float, float]:
        """(mean, P99) over windows as it is."""
        return _mean_and_p99(even_imbalance(self.tokens, self.plan, self.speed)[:, 0])

    def one_fewer(self, expert: int) -> Change | None:
        """The best use of one of its slots for another expert; None when it has one replica."""
        if int(self.plan.replicas[0, expert]) < 2:
            return None
        return self._best(self._given_up(expert))

    def one_more(self, expert: int) -> Change | None:
        """The best slot for a further replica; None when it is on every rank or nobody can spare a slot."""
        return self._best(self._taken(expert))

    @property
    def _row(self) -> Int32Array:
        row: Int32Array = self.plan.expert_of_slot[0]
        return row

    def _on_rank(self, rank: int) -> Int32Array:
        there: Int32Array = self._row[self.plan.rank_of_slot == rank]
        return there

    def _given_up(self, expert: int) -> Iterator[tuple[int, int]]:
        """(slot, who comes)."""
        for slot in np.flatnonzero(self._row == expert):
            there = self._on_rank(int(self.plan.rank_of_slot[slot]))
            for other in np.setdiff1d(np.arange(self.plan.experts), there):
                yield int(slot), int(other)

    def _taken(self, expert: int) -> Iterator[tuple[int, int]]:
        """(slot, who comes)."""
        holding = np.unique(self.plan.rank_of_slot[self._row == expert])
        free = ~np.isin(self.plan.rank_of_slot, holding) & (self.plan.replicas[0, self._row] > 1)
        for slot in np.flatnonzero(free):
            yield int(slot), expert

    def _best(self, found: Iterator[tuple[int, int]]) -> Change | None:
        candidates = list(found)
        if not candidates:
            return None
        total = self.tokens.sum(axis=0, keepdims=True)
        plans = [self._with(slot, comes) for slot, comes in candidates]
        first = np.argsort(even_imbalances(total, plans, self.speed)[:, 0, 0], kind="stable")[:JUDGED]
        judged = even_imbalances(self.tokens, [plans[at] for at in first], self.speed)[:, :, 0]
        best = int(np.argmin(np.nanmean(judged, axis=1)))
        (slot, comes), (mean, p99) = candidates[first[best]], _mean_and_p99(judged[best])
        rank, leaves = int(self.plan.rank_of_slot[slot]), int(self._row[slot])
        return Change(rank=rank, leaves=leaves, comes=comes, mean=mean, p99=p99)

    def _with(self, slot: int, comes: int) -> Plan:
        row = self.plan.expert_of_slot.copy()
        row[0, slot] = comes
        return replace(self.plan, expert_of_slot=frozen(row, np.int32))


def _mean_and_p99(ratios: FloatArray) -> tuple[float, float]:
    known = ratios[np.isfinite(ratios)]
    return (float(known.mean()), float(np.quantile(known, 0.99))) if len(known) else (1.0, 1.0)
