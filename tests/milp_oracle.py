"""Exact optima of small placements, by HiGHS (`scipy.optimize.milp`): what bounds and searches are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, Int32Array

SECONDS = 60.0


class Optimum(NamedTuple):
    """value: rank imbalance (of windows: its mean) that no even-split placement beats · expert_of_slot: int32[P], rank
    by rank, one placement that has it."""

    value: float
    expert_of_slot: Int32Array


class NotClosedError(Exception):
    """HiGHS did not prove an optimum in time."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A small problem that HiGHS closes in seconds. windows: 0 = one load vector · skew: of the power law."""

    experts: int
    ranks: int
    slots_per_rank: int
    skew: float
    seed: int
    windows: int = 0

    @property
    def weight(self) -> FloatArray:
        """float64[E] loads, or float64[W, E] loads of windows in which experts take turns at being hot."""
        rng = np.random.default_rng([self.seed, self.experts, self.ranks, self.slots_per_rank])
        load = rng.permutation(np.arange(1, self.experts + 1) ** -self.skew) * rng.lognormal(0, 0.2, self.experts)
        if not self.windows:
            return np.round(load * 1000)
        turns = rng.gamma(1.0, size=(self.windows, self.experts))
        return np.round(load * turns * 1000)


INSTANCES = tuple(
    Instance(experts=experts, ranks=ranks, slots_per_rank=slots, skew=skew, seed=seed)
    for (experts, ranks, slots), skew, seed in product(
        ((4, 2, 2), (4, 2, 3), (6, 3, 2), (5, 3, 2), (6, 3, 3), (8, 4, 2), (6, 4, 2)), (0.3, 0.8, 1.4), (0, 1)
    )
)
"""Closed within about a second each; `optimum` of them is for every test run."""

HARD_INSTANCES = tuple(
    Instance(experts=experts, ranks=ranks, slots_per_rank=slots, skew=skew, seed=seed)
    for (experts, ranks, slots), skew, seed in product(
        ((8, 4, 3), (10, 4, 3), (9, 3, 4), (10, 3, 4), (12, 3, 5), (16, 4, 4)), (0.6, 1.0), (0,)
    )
)
"""A third of a second to ten seconds each, for `-m slow`; 12 experts on 4 ranks of 4 are not closed in 40 s."""

WINDOW_INSTANCES = tuple(
    Instance(experts=experts, ranks=ranks, slots_per_rank=slots, skew=0.6, seed=seed, windows=windows)
    for (experts, ranks, slots, windows), seed in product(
        ((4, 2, 3, 3), (6, 3, 2, 3), (5, 3, 2, 4), (6, 2, 4, 4), (8, 4, 2, 8)), (0, 1)
    )
)
"""Closed within about a second each."""

HARD_WINDOW_INSTANCES = tuple(
    Instance(experts=experts, ranks=ranks, slots_per_rank=slots, skew=0.6, seed=seed, windows=windows)
    for (experts, ranks, slots, windows), seed in product(((8, 4, 3, 4), (8, 3, 4, 6), (9, 5, 2, 4)), (0, 1))
)
"""Seconds each, for `-m slow`."""


def optimum(weight: FloatArray, ranks: int, slots_per_rank: int | Sequence[int], seconds: float = SECONDS) -> Optimum:
    """The least max / mean rank load over all placements of float64[E] loads without an expert twice on a rank.

    slots_per_rank: of every rank, or of each. Raises `NotClosedError` when not proven within `seconds`.
    """
    return optimum_of_windows(np.asarray(weight, np.float64)[None], ranks, slots_per_rank, seconds)


def optimum_of_windows(
    weight: FloatArray, ranks: int, slots_per_rank: int | Sequence[int], seconds: float = SECONDS
) -> Optimum:
    """The least mean over windows of max / mean rank load that one placement reaches; weight: float64[W, E], every
    window with load. Raises `NotClosedError` when not proven within `seconds`."""
    slots = np.broadcast_to(np.asarray(slots_per_rank), ranks)
    loads = np.asarray(weight, np.float64)
    shares = loads / (loads.sum(axis=1, keepdims=True) / ranks)
    model = _Model(shares, slots)
    holds = model.solve(seconds)
    placed = np.concatenate([np.flatnonzero(row) for row in holds]).astype(np.int32)
    return Optimum(imbalance_of(loads, placed, slots), placed)


def imbalance_of(weight: AnyArray, expert_of_slot: AnyArray, slots_per_rank: AnyArray) -> float:
    """Mean over windows of max / mean rank load under an even split; weight: [W, E] or [E]."""
    loads = np.atleast_2d(weight)
    unit = loads / np.bincount(expert_of_slot, minlength=loads.shape[1])
    starts = np.concatenate([[0], np.cumsum(slots_per_rank)[:-1]])
    rank_load = np.add.reduceat(unit[:, expert_of_slot], starts, axis=1)
    return float((rank_load.max(axis=1) / rank_load.mean(axis=1)).mean())


class _Model:
    """Columns: stands[e, c, r] = 1 when expert e has c + 1 replicas, one of them on rank r · copies[e, c] = 1 when it
    has c + 1 · worst[w]."""

    def __init__(self, shares: FloatArray, slots: AnyArray) -> None:
        self.shares, self.slots = shares, slots
        self.windows, self.experts = shares.shape
        self.ranks = len(slots)
        self.most = min(self.ranks, int(slots.sum()) - self.experts + 1)
        cells = self.experts * self.most
        self.stands = np.arange(cells * self.ranks).reshape(self.experts, self.most, self.ranks)
        self.copies = self.stands.size + np.arange(cells).reshape(self.experts, self.most)
        self.worst = self.stands.size + cells + np.arange(self.windows)
        self.columns = self.stands.size + cells + self.windows
        self.rows: list[FloatArray] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def solve(self, seconds: float) -> BoolArray:
        """bool[R, E] which rank holds which expert."""
        self._placement()
        self._loads()
        self._order_ranks()
        cost = np.zeros(self.columns)
        cost[self.worst] = 1 / self.windows
        integral = np.ones(self.columns)
        integral[self.worst] = 0
        upper = np.where(integral, 1.0, np.inf)
        found = milp(
            cost,
            integrality=integral,
            bounds=Bounds(np.where(integral, 0.0, 1.0), upper),
            constraints=LinearConstraint(csr_array(np.array(self.rows)), self.low, self.high),
            options={"time_limit": seconds, "mip_rel_gap": 1e-7},
        )
        if found.status != 0:
            raise NotClosedError(found.message)
        holds: BoolArray = np.rint(found.x[self.stands]).sum(axis=1).T > 0
        return holds

    def _row(self, low: float, high: float) -> FloatArray:
        self.rows.append(np.zeros(self.columns))
        self.low.append(low)
        self.high.append(high)
        return self.rows[-1]

    def _placement(self) -> None:
        for expert in range(self.experts):
            self._row(1, 1)[self.copies[expert]] = 1
            for count in range(self.most):
                row = self._row(0, 0)
                row[self.stands[expert, count]] = 1
                row[self.copies[expert, count]] = -(count + 1)
                for rank in range(self.ranks):
                    row = self._row(-np.inf, 0)
                    row[self.stands[expert, count, rank]] = 1
                    row[self.copies[expert, count]] = -1
        for rank in range(self.ranks):
            self._row(self.slots[rank], self.slots[rank])[self.stands[:, :, rank].ravel()] = 1

    def _loads(self) -> None:
        for window, rank in product(range(self.windows), range(self.ranks)):
            row = self._row(-np.inf, 0)
            row[self.stands[:, :, rank]] = self.shares[window][:, None] / np.arange(1, self.most + 1)
            row[self.worst[window]] = -1

    def _order_ranks(self) -> None:
        """Equal ranks are interchangeable: the loads of the first window fall."""
        unit = self.shares[0][:, None] / np.arange(1, self.most + 1)
        for rank in range(1, self.ranks):
            if self.slots[rank] == self.slots[rank - 1]:
                row = self._row(0, np.inf)
                row[self.stands[:, :, rank - 1]] = unit
                row[self.stands[:, :, rank]] = -unit
