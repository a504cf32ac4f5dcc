"""A fresh greedy plan every so many steps, from the load of the last ones: what serving engines ship."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim import policies
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots
from easybalance_sim.policies import Problem
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Service, Window


@dataclass(kw_only=True)
class Periodic:
    """interval_steps: between two plans · window_steps: whose load makes a plan · enough: share of mean over busiest
    rank above which the plan is kept, 1 = always re-plan."""

    name: str
    service: Service
    interval_steps: float
    window_steps: float
    style: Style
    enough: float = 1.0
    _seen: deque[Window] = field(default_factory=deque, repr=False)
    _since: float = 0.0

    def observe(self, window: Window, plan: Plan) -> Plan | None:
        """Counts the window; plans when the interval is over."""
        self._seen.append(window)
        while sum(one.steps for one in self._seen) - self._seen[0].steps >= self.window_steps:
            self._seen.popleft()
        self._since += window.steps
        if self._since < self.interval_steps:
            return None
        self._since = 0.0
        load = np.sum([one.tokens for one in self._seen], axis=0)
        balanced = [1 / self.service.imbalance(one, plan).mean() for one in self._seen]
        if self.enough < 1.0 and float(np.mean(balanced)) > self.enough:
            return None
        problem = Problem(
            forecast=load.astype(np.float64),
            windows=load[None],
            topology=self.service.topology,
            top_k=self.service.top_k,
        )
        return keep_slots(plan, policies.make("eplb", problem))
