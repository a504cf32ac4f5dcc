"""Our loop: re-plans when the evidence that a plan saves more than its moves cost is good enough, and not before.

Of the last windows every fourth is kept from the search and is the first to judge the candidate; windows that come
later go on with it. Each is a pair: its seconds under the plan in force and under the candidate. As soon as the lower
bound of the mean saving, over the windows that a regime is expected to last, exceeds transfer and pause, the candidate
is taken into service: a large saving after one window, a small one after several. A window that is much
less even than the others let expect makes a candidate of its own at once, which later windows alone judge; when it
proves itself, what was remembered is over. So it is when a fast moving average of the load leaves a slow one. A
cooldown follows a change, longer when it takes back what the one before had done.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.load.forecast import FAST_HALF_LIFE, SLOW_HALF_LIFE
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.policies.warm_search import PASS_SHARE
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Service, Window
from easybalance_sim.simulate.rebalance.transfer import takes_back

JUDGED_OF = 4
"""Of the remembered windows one in so many is kept from the search."""
FEWEST = 4
"""Windows before a candidate, and before the plan in force has shown what is usual for it."""
SPREAD = 0.01
"""Share of a step's seconds by which a saving differs from one window to the next, until windows tell: the median of
recorded routing, ten times that of synthetic days. It counts as much as one window."""


@dataclass(frozen=True, kw_only=True)
class Guard:
    """memory: windows remembered · check_every: windows between two looks · min_gain: share of a step's seconds that a
    candidate has to save on the mean of the windows that it was not made from · confirm: of these, windows that have to
    come after it was made · certainty: standard errors by which the saving has to exceed its price, and a window the
    usual imbalance to be sudden · cooldown: windows after a change · min_interval: windows between two changes whatever
    happens · horizon: windows that a regime is expected to last before any has ended · step_limit: share of all slots
    that one change may fetch · alarm: distance between the fast and the slow average (share of the load that lies
    elsewhere) at which older windows are forgotten · proposals: of one pass of the search, per layer."""

    memory: int = 16
    check_every: int = 4
    min_gain: float = 0.005
    confirm: int = 1
    certainty: float = 2.0
    cooldown: int = 4
    min_interval: int = 1
    horizon: int = 256
    step_limit: float = 0.25
    alarm: float = 0.15
    proposals: int = 200_000


@dataclass(kw_only=True, eq=False)
class Trial:
    """A candidate on trial. since: number of the window that set it off, when that was sudden · saved: share of each
    window's seconds that it saves · seconds: of these windows under the plan in force · later: of them, windows that
    came after it was made."""

    plan: Plan
    since: int | None = None
    saved: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    later: int = 0


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
    _served: int = 0
    _waited: int = 0
    _rest: int = 0
    _since: int | None = None
    _before: Plan | None = None

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """Remembers the window; asks for a plan when one has proven itself."""
        if not window.tokens.any():
            return None
        self._remember(window)
        self._served += 1
        self._waited += 1
        self._rest = max(0, self._rest - 1)
        self._since = None if self._since is None else self._since + 1
        if busy or (self._since is not None and self._since < self.guard.min_interval):
            return None
        if self._trial is None:
            self._trial = self._start(plan)
            return None
        self._trial.later += 1
        self._witness(self._trial, plan, [window])
        return self._look(self._trial, plan)

    def _remember(self, window: Window) -> None:
        """Update both averages (shares of each layer's load) and forget what the alarm says is over."""
        share = _shares(window.tokens)
        self._fast = _averaged(self._fast, share, FAST_HALF_LIFE)
        self._slow = _averaged(self._slow, share, SLOW_HALF_LIFE)
        self._seen.append(window)
        if len(self._seen) > self.guard.memory:
            self._seen.popleft()
        away = float(np.abs(self._fast - self._slow).sum(axis=1).mean()) / 2
        if away > self.guard.alarm:
            self._forget(window.number - FEWEST + 1)
            self._trial = None

    def _forget(self, first: int) -> None:
        """A regime ended: only windows from `first` on tell of the one to come."""
        self.alarms.append(self._seen[-1].number)
        self._seen = deque(window for window in self._seen if window.number >= first)
        self._fast = self._slow = _shares(np.sum([window.tokens for window in self._seen], axis=0))

    def _start(self, plan: Plan) -> Trial | None:
        """Put a candidate on trial when it is time for a look, or at once when the last window is worse than usual."""
        windows = list(self._seen)
        if self._is_sudden(plan, windows):
            candidate = self._searched(plan, windows[-1:])
            if candidate is not None:
                return Trial(plan=candidate, since=windows[-1].number)
        if self._rest or len(windows) < FEWEST or self._waited < self.guard.check_every:
            return None
        self._waited = 0
        kept = windows[JUDGED_OF - 1 :: JUDGED_OF]
        fit = [window for place, window in enumerate(windows) if place % JUDGED_OF != JUDGED_OF - 1]
        candidate = self._searched(plan, fit)
        if candidate is None:
            return None
        trial = Trial(plan=candidate)
        self._witness(trial, plan, kept)
        return trial if np.mean(trial.saved) >= self.guard.min_gain else None

    def _is_sudden(self, plan: Plan, windows: Sequence[Window]) -> bool:
        """Whether the last window is less even than the others let expect."""
        *usual, last = [float(np.nanmean(self.service.imbalance(window, plan))) for window in windows]
        if len(usual) < FEWEST:
            return False
        # Of one more window: its own spread and that of the mean.
        spread = _standard_error(usual) * math.sqrt(len(usual) + 1)
        return last - float(np.mean(usual)) > self.guard.certainty * spread

    def _witness(self, trial: Trial, plan: Plan, windows: Sequence[Window]) -> None:
        """What the candidate saves on windows that it was not made from."""
        for window in windows:
            old, new = (float(self.service.step_seconds(window, one).mean()) for one in (plan, trial.plan))
            trial.saved.append((old - new) / old)
            trial.seconds.append(old * window.steps)

    def _look(self, trial: Trial, plan: Plan) -> Plan | None:
        """The candidate as soon as the evidence is good enough; one that saves too little or is old is dropped."""
        mean = float(np.mean(trial.saved))
        if mean < self.guard.min_gain:
            self._trial = None
            return None
        sure = mean - self.guard.certainty * _standard_error(trial.saved)
        earned = sure * float(np.mean(trial.seconds)) * self._horizon()
        price = float(self.service.transfer(plan, trial.plan).layer_s.sum()) + self.style.fixed_s
        if trial.later >= self.guard.confirm and earned > price:
            self._trial = None
            return self._adopt(plan, trial)
        if trial.later >= self.guard.memory:
            self._trial = None
        return None

    def _horizon(self) -> float:
        """Windows that a regime is expected to last: as those so far did, the first guess counts as one of them."""
        return (self.guard.horizon + self._served) / (1 + len(self.alarms))

    def _searched(self, plan: Plan, fit: Sequence[Window]) -> Plan | None:
        """The plan in force improved on these windows with few moves, None when there is no such plan."""
        tokens = np.stack([window.tokens for window in fit])
        problem = Problem(
            forecast=tokens.mean(axis=0),
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

    def _adopt(self, plan: Plan, trial: Trial) -> Plan:
        if trial.since is not None:
            self._forget(trial.since)
        self._rest, self._since, self._waited = self.guard.cooldown, 0, 0
        if self._before is not None and takes_back(self._before, plan, trial.plan):
            self._rest *= 4
        self._before = plan
        return trial.plan


def _shares(tokens: IntArray) -> FloatArray:
    share: FloatArray = tokens / np.maximum(tokens.sum(axis=1, keepdims=True), 1)
    return share


def _averaged(before: FloatArray | None, share: FloatArray, half_life: float) -> FloatArray:
    keep = 0.5 ** (1 / half_life)
    return share if before is None else keep * before + (1 - keep) * share


def _standard_error(values: Sequence[float]) -> float:
    """Of the mean of at least one value; `SPREAD` stands in for values that are not there yet."""
    off = float(((np.array(values) - np.mean(values)) ** 2).sum())
    return math.sqrt((off + SPREAD**2) / len(values) / len(values))
