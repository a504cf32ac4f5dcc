"""Few swaps at a time between the busiest and other ranks, as vllm-ascend's swift balancer: incremental, greedy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Service, Window


@dataclass(kw_only=True)
class Swaps:
    """interval_steps: between two rounds · threshold: busiest over mean rank that is left alone · most: swaps of a
    layer in a round, at most one for each pair of ranks."""

    name: str
    service: Service
    interval_steps: float
    style: Style
    threshold: float = 1.01
    most: int = 100
    _load: IntArray | None = None
    _since: float = 0.0

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """Sums the load since the last round; swaps when the interval is over."""
        if busy:
            return None
        load = window.tokens if self._load is None else window.tokens + self._load
        self._load = load
        self._since += window.steps
        if self._since < self.interval_steps:
            return None
        rows = np.array(plan.expert_of_slot)
        for layer, row in enumerate(rows):
            self._settle(row, plan, load[layer] / plan.replicas[layer])
        self._since, self._load = 0.0, None
        if np.array_equal(rows, plan.expert_of_slot):
            return None
        return replace(plan, expert_of_slot=frozen(rows, np.int32))

    def _settle(self, row: Int32Array, plan: Plan, share: FloatArray) -> None:
        """Swap experts of one layer in place; share: float64[E] load of one replica."""
        used: set[tuple[int, int]] = set()
        for _ in range(self.most):
            load = np.add.reduceat(share[row], plan.slot_start[:-1])
            if load.max() <= self.threshold * load.mean():
                return
            pair = self._best(row, plan, share, load, used)
            if pair is None:
                return
            one, other = pair
            used.add((int(plan.rank_of_slot[one]), int(plan.rank_of_slot[other])))
            row[one], row[other] = row[other], row[one]

    def _best(
        self, row: Int32Array, plan: Plan, share: FloatArray, load: FloatArray, used: set[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """The swap with the busiest rank that leaves the busier of the two lowest; None when none helps."""
        hot = int(load.argmax())
        mine = np.arange(plan.slot_start[hot], plan.slot_start[hot + 1])
        best, found = float(load[hot]), None
        for rank in np.argsort(load).tolist():
            if rank == hot or (hot, rank) in used:
                continue
            theirs = np.arange(plan.slot_start[rank], plan.slot_start[rank + 1])
            gain = share[row[mine]][:, None] - share[row[theirs]][None, :]
            after = np.maximum(load[hot] - gain, load[rank] + gain)
            held = np.isin(row[mine], row[theirs])[:, None] | np.isin(row[theirs], row[mine])[None, :]
            after[held] = np.inf
            at = np.unravel_index(int(after.argmin()), after.shape)
            if after[at] < best - 1e-9:
                best, found = float(after[at]), (int(mine[at[0]]), int(theirs[at[1]]))
        return found
