"""Our loop: re-plans only when a plan made from some windows proves itself on others, and pays for its moves.

A slow moving average carries the usual candidate; a fast one raises the alarm that what was remembered is over. Of the
windows remembered every fourth is kept from the search and judges the candidate. Then it is on trial: before it is
taken into service it has to hold on windows that came later, several times in a row (hysteresis). The expected gain
over the horizon has to be worth more than the transfer and the pause. A cooldown follows, longer when a change takes
back what the one before had done. When ranks suddenly run hot, the last windows make a candidate at once: it has to
gain more, on as many later windows, and does not wait for the cooldown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
    min_interval: windows between two changes whatever happens · horizon: windows that a plan is expected to live ·
    step_limit: share of all slots that one change may fetch · alarm: distance between the fast and the slow average
    (share of the load that lies elsewhere) at which older windows are forgotten · hot: imbalance (mean over layers)
    that is sudden when the last `sudden` windows all exceed it · sudden_gain: as min_gain, of a candidate made from
    these · proposals: of one pass of the search, per layer."""

    memory: int = 64
    check_every: int = 4
    min_gain: float = 0.02
    confirm: int = 2
    cooldown: int = 16
    min_interval: int = 1
    horizon: int = 256
    step_limit: float = 0.25
    alarm: float = 0.15
    hot: float = 1.15
    sudden: int = 1
    sudden_gain: float = 0.05
    proposals: int = 200_000


@dataclass(kw_only=True, eq=False)
class Trial:
    """A candidate on trial. gain: share of the seconds that it has to save · every: windows of a look · looks: that it
    has yet to pass · windows: since the last look."""

    plan: Plan
    gain: float
    every: int
    looks: int
    windows: list[Window] = field(default_factory=list)


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
    _trial: Trial | None = None
    _waited: int = 0
    _rest: int = 0
    _sudden_rest: int = 0
    _since: int | None = None
    _before: Plan | None = None

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """Remembers the window; asks for a plan when one has proven itself."""
        self._remember(window)
        self._waited += 1
        self._rest, self._sudden_rest = max(0, self._rest - 1), max(0, self._sudden_rest - 1)
        self._since = None if self._since is None else self._since + 1
        if busy or (self._since is not None and self._since < self.guard.min_interval):
            return None
        if self._trial is None:
            self._trial = self._start(plan)
            return None
        self._trial.windows.append(window)
        return self._look(self._trial, plan)

    def _remember(self, window: Window) -> None:
        """Update both averages (shares of each layer's load) and forget what the alarm says is over."""
        share = window.tokens / np.maximum(window.tokens.sum(axis=1, keepdims=True), 1)
        self._fast = _averaged(self._fast, share, FAST_HALF_LIFE)
        self._slow = _averaged(self._slow, share, SLOW_HALF_LIFE)
        self._seen.append(window)
        if len(self._seen) > self.guard.memory:
            self._seen.popleft()
        away = float(np.abs(self._fast - self._slow).sum(axis=1).mean()) / 2
        if away > self.guard.alarm and len(self._seen) > FEWEST:
            self.alarms.append(window.number)
            self._seen = deque(list(self._seen)[-FEWEST:])
            self._slow, self._trial = self._fast, None

    def _start(self, plan: Plan) -> Trial | None:
        """Put a candidate on trial when it is time for a look, or at once when ranks run hot."""
        guard, recent = self.guard, list(self._seen)[-self.guard.sudden :]
        if not self._sudden_rest and len(recent) == guard.sudden and self._is_hot(plan, recent):
            self._sudden_rest = guard.sudden
            candidate = self._searched(plan, recent)
            if candidate is not None and self._pays(plan, candidate, recent, guard.sudden_gain):
                return Trial(plan=candidate, gain=guard.sudden_gain, every=guard.sudden, looks=1)
        if self._rest or len(self._seen) < FEWEST or self._waited < guard.check_every:
            return None
        self._waited = 0
        windows = list(self._seen)
        kept = windows[JUDGED_OF - 1 :: JUDGED_OF]
        fit = [window for place, window in enumerate(windows) if place % JUDGED_OF != JUDGED_OF - 1]
        candidate = self._searched(plan, fit)
        if candidate is None or not self._pays(plan, candidate, kept, guard.min_gain):
            return None
        return Trial(plan=candidate, gain=guard.min_gain, every=guard.check_every, looks=guard.confirm)

    def _is_hot(self, plan: Plan, windows: Sequence[Window]) -> bool:
        ratios = (np.nanmean(self.service.imbalance(window, plan)) for window in windows)
        return all(ratio > self.guard.hot for ratio in ratios)

    def _look(self, trial: Trial, plan: Plan) -> Plan | None:
        """The candidate when it has passed its last look; one that fails is dropped."""
        if len(trial.windows) < trial.every:
            return None
        holds = self._pays(plan, trial.plan, trial.windows, trial.gain)
        trial.windows, trial.looks, self._waited = [], trial.looks - 1, 0
        if holds and trial.looks:
            return None
        self._trial = None
        return self._adopt(plan, trial.plan) if holds else None

    def _searched(self, plan: Plan, fit: Sequence[Window]) -> Plan | None:
        """The plan in force improved on these windows with few moves, None when there is no such plan."""
        tokens = np.stack([window.tokens for window in fit])
        enough = len(fit) >= FEWEST * (JUDGED_OF - 1) // JUDGED_OF
        if enough and self._slow is not None:
            forecast = self._slow * tokens.sum(axis=2).mean(axis=0)[:, None]
        else:
            forecast = tokens.mean(axis=0)
        problem = Problem(
            forecast=forecast,
            windows=tokens,
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
            return replace(policies.make("warm_search", problem), policy=self.name)
        except NotApplicable:
            return None

    def _pays(self, plan: Plan, candidate: Plan, windows: Sequence[Window], gain: float) -> bool:
        """Whether a candidate saves its share of the seconds on these windows, and its price within the horizon."""
        old = np.array([self.service.step_seconds(window, plan).mean() for window in windows])
        new = np.array([self.service.step_seconds(window, candidate).mean() for window in windows])
        steps = np.array([window.steps for window in windows])
        saved = float(((old - new) * steps).sum())
        if saved < gain * float((old * steps).sum()):
            return False
        price = float(self.service.transfer(plan, candidate).layer_s.sum()) + self.style.fixed_s
        return saved / len(windows) * self.guard.horizon > price

    def _adopt(self, plan: Plan, candidate: Plan) -> Plan:
        self._rest, self._since = self.guard.cooldown, 0
        if self._before is not None and takes_back(self._before, plan, candidate):
            self._rest *= 4
        self._before = plan
        return candidate


def _averaged(before: FloatArray | None, share: FloatArray, half_life: float) -> FloatArray:
    keep = 0.5 ** (1 / half_life)
    return share if before is None else keep * before + (1 - keep) * share
