"""Our loop: re-plans only when a plan made from some windows proves itself on others, and pays for its moves.

A fast moving average raises the alarm, a slow one carries the candidate, which is searched from the plan in force with
few moves. Of the windows remembered every fourth is kept from the search and judges the candidate; before it is
taken into service it has to hold on windows that came later, several times in a row (hysteresis). The expected gain
over the horizon has to be worth more than the transfer and the pause. A cooldown follows, longer when a change takes
back what the one before had done.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray
from easybalance_sim.load.forecast import FAST_HALF_LIFE, SLOW_HALF_LIFE
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.policies.warm_search import PASS_SHARE
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Service, Window
from easybalance_sim.simulate.rebalance.transfer import takes_back

JUDGED_OF = 4
"""Of the remembered windows one in so many is kept from the search."""
FEWEST = 12
"""Windows before a first candidate: a search wants eight."""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """memory: windows remembered · check_every: windows between two looks · min_gain: share of a step's seconds that a
    candidate has to save on windows it was not made from · confirm: times in a row · cooldown: windows after a change ·
    horizon: windows that a plan is expected to live · step_limit: share of all slots that one change may fetch ·
    alarm: distance between the fast and the slow average (share of the load that lies elsewhere) at which older windows
    are forgotten · proposals: of one pass of the search, per layer."""

    memory: int = 64
    check_every: int = 4
    min_gain: float = 0.02
    confirm: int = 2
    cooldown: int = 16
    horizon: int = 256
    step_limit: float = 0.1
    alarm: float = 0.15
    proposals: int = 200_000


@dataclass(kw_only=True)
class Guarded:
    """See the module."""

    name: str
    service: Service
    style: Style
    guard: Guard = field(default_factory=Guard)
    seed: int = 0
    alarms: list[int] = field(default_factory=list)
    _seen: deque[Window] = field(default_factory=deque, repr=False)
    _fast: FloatArray | None = None
    _slow: FloatArray | None = None
    _candidate: Plan | None = None
    _later: list[Window] = field(default_factory=list, repr=False)
    _confirmed: int = 0
    _rest: int = 0
    _before: Plan | None = None

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """Remembers the window; asks for a plan when one has proven itself."""
        self._remember(window)
        if busy:
            return None
        self._later.append(window)
        self._rest = max(0, self._rest - 1)
        if self._rest or len(self._seen) < FEWEST or len(self._later) < self.guard.check_every:
            return None
        if self._candidate is None:
            self._candidate = self._propose(plan)
            self._later = []
            return None
        holds = self._pays(plan, self._candidate, self._later)
        self._later = []
        self._confirmed = self._confirmed + 1 if holds else 0
        if not holds:
            self._candidate = None
        if self._confirmed < self.guard.confirm:
            return None
        return self._adopt(plan, self._candidate)

    def _remember(self, window: Window) -> None:
        """Update both averages (shares of each layer's load) and forget what the alarm says is over."""
        share = window.tokens / np.maximum(window.tokens.sum(axis=1, keepdims=True), 1)
        for name, life in (("_fast", FAST_HALF_LIFE), ("_slow", SLOW_HALF_LIFE)):
            before, keep = getattr(self, name), 0.5 ** (1 / life)
            setattr(self, name, share if before is None else keep * before + (1 - keep) * share)
        self._seen.append(window)
        if len(self._seen) > self.guard.memory:
            self._seen.popleft()
        assert self._fast is not None and self._slow is not None
        away = float(np.abs(self._fast - self._slow).sum(axis=1).mean()) / 2
        if away > self.guard.alarm and len(self._seen) > FEWEST:
            self.alarms.append(window.number)
            self._seen = deque(list(self._seen)[-FEWEST:])
            self._slow, self._candidate, self._confirmed = self._fast, None, 0

    def _propose(self, plan: Plan) -> Plan | None:
        """A candidate that pays on the windows kept from its search, None when there is none."""
        windows = list(self._seen)
        kept = windows[JUDGED_OF - 1 :: JUDGED_OF]
        fit = [window for place, window in enumerate(windows) if place % JUDGED_OF != JUDGED_OF - 1]
        assert self._slow is not None
        size = np.mean([window.tokens.sum(axis=1) for window in fit], axis=0)
        problem = Problem(
            forecast=self._slow * size[:, None],
            windows=np.stack([window.tokens for window in fit]),
            topology=self.service.topology,
            current=plan,
            seed=self.seed,
            window_steps=float(np.mean([window.steps for window in fit])),
            top_k=self.service.top_k,
            slot_cost=self.service.slot_cost,
            effort=Effort(
                proposals=self.guard.proposals * PASS_SHARE,
                max_moves=int(self.guard.step_limit * plan.expert_of_slot.size),
            ),
        )
        try:
            candidate = policies.make("warm_search", problem)
        except NotApplicable:
            return None
        return candidate if self._pays(plan, candidate, kept) else None

    def _pays(self, plan: Plan, candidate: Plan, windows: list[Window]) -> bool:
        """Whether a candidate saves its share of the seconds on these windows, and its price within the horizon."""
        old = np.array([self.service.step_seconds(window, plan).mean() for window in windows])
        new = np.array([self.service.step_seconds(window, candidate).mean() for window in windows])
        steps = np.array([window.steps for window in windows])
        saved = float(((old - new) * steps).sum())
        if saved < self.guard.min_gain * float((old * steps).sum()):
            return False
        price = float(self.service.transfer(plan, candidate).layer_s.sum()) + self.style.fixed_s
        return saved / len(windows) * self.guard.horizon > price

    def _adopt(self, plan: Plan, candidate: Plan | None) -> Plan | None:
        self._rest = self.guard.cooldown
        if candidate is not None and self._before is not None and takes_back(self._before, plan, candidate):
            self._rest *= 4
        self._before, self._candidate, self._confirmed = plan, None, 0
        return candidate
