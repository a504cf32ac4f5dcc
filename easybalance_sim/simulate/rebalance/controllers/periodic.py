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
    """interval_steps: between two plans · first_steps: before the first one, None = an interval · window_steps: whose
    load makes a plan · enough: utilisation (mean over busiest rank, mean over layers) of these steps above which the
    plan is kept, 1 = always re-plan.

    A window of the trace is the shortest interval: of several plans within one, one is made. (SGLang: 1000, 1000 and a
    threshold of 1; vLLM: 3000, the first after a quarter of it, 1000.)
    """

    name: str
    service: Service
    interval_steps: float
    window_steps: float
    style: Style
    first_steps: float | None = None
    enough: float = 1.0
    _seen: deque[Window] = field(default_factory=deque, repr=False)
    _since: float = 0.0

    def __post_init__(self) -> None:
        if self.first_steps is not None:
            self._since = self.interval_steps - self.first_steps

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """Counts the window; plans when the interval is over and the last plan is in service."""
        self._seen.append(window)
        while sum(one.steps for one in self._seen) - self._seen[0].steps >= self.window_steps:
            self._seen.popleft()
        self._since += window.steps
        if self._since < self.interval_steps or busy:
            return None
        self._since %= self.interval_steps
        if self.enough < 1.0 and self._utilisation(plan) > self.enough:
            return None
        load = np.sum([one.tokens for one in self._seen], axis=0)
        problem = Problem(
            forecast=load.astype(np.float64),
            windows=load[None],
            topology=self.service.topology,
            top_k=self.service.top_k,
        )
        return keep_slots(plan, policies.make("eplb", problem))

    def _utilisation(self, plan: Plan) -> float:
        return float(np.nanmean([1 / self.service.imbalance(one, plan) for one in self._seen]))
