"""`Jobs`: what micro-batches ask of ranks; `run`: how long it takes when ranks serve them by a rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, Int32Array, frozen, require_shape, sealed
from easybalance_sim.errors import UsageError

RULES = ("fifo", "oldest", "heat", "path", "closing")
"""Which waiting part a free rank serves. fifo: the one that came first · oldest: that of the oldest micro-batch · heat,
EasyBalance's priority queue: a rank that is hotter than the mean lets the layers that are cold on it pass first, any
other those that are hot on it · path: the one with the longest way still to go in its lane if nothing waited, which
takes knowing the future · closing: that of the micro-batch with the fewest parts left in its layer, which gets on
soonest."""

HEAT_S = 0.3
"""In which heat that is not renewed falls to 1/e: the 300 ms of EasyBalance's window."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Jobs:
    """B micro-batches of G stages on R ranks.

    service: float64[B, G, R] seconds of each part · delay: float64[B, G] seconds between a stage's last part and the
    next stage · lane: int32[B]; those of a lane follow one another in the order of their numbers, as the next token of
    a request waits for the last · tokens: float64[B]. Raises `EbsimError` for shapes that do not fit, `UsageError` for
    seconds that are negative or not finite and for lanes that are not numbered from 0.
    """

    service: FloatArray
    delay: FloatArray
    lane: Int32Array
    tokens: FloatArray

    def __post_init__(self) -> None:
        for name, dtype in (("service", float), ("delay", float), ("lane", np.int32), ("tokens", float)):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        require_shape("service", self.service, (None, None, None))
        require_shape("delay", self.delay, self.service.shape[:2])
        require_shape("lane", self.lane, self.service.shape[:1])
        require_shape("tokens", self.tokens, self.service.shape[:1])
        if not self.service.size:
            raise UsageError("there is no micro-batch", where="layer queue", fix="give at least one step with tokens")
        if not all(np.isfinite(values).all() and values.min() >= 0 for values in (self.service, self.delay)):
            raise UsageError("seconds must be finite and ≥ 0", where="layer queue")
        if len(np.unique(self.lane)) != self.lane.max() + 1 or self.lane.min() < 0:
            raise UsageError("lanes must be numbered from 0 without gaps", where="layer queue")

    @property
    def lanes(self) -> int:
        """Micro-batches in flight at once."""
        return int(self.lane.max()) + 1

    @cached_property
    def work_s(self) -> FloatArray:
        """float64[R] seconds of all parts of each rank."""
        return sealed(self.service.sum(axis=(0, 1)))

    @cached_property
    def alone_s(self) -> FloatArray:
        """float64[B] seconds of each micro-batch that never waits."""
        return sealed((self.service.max(axis=2) + self.delay).sum(axis=1))

    @cached_property
    def hot(self) -> FloatArray:
        """float64[G, R] mean seconds of a stage on a rank over those on the mean rank."""
        mean = self.service.mean(axis=0)
        even = mean.mean(axis=1, keepdims=True)
        return frozen(np.divide(mean, even, out=np.ones_like(mean), where=even > 0))

    @cached_property
    def tail(self) -> FloatArray:
        """float64[B, G] seconds from the end of a stage to the end of its lane if nothing waits."""
        ahead = self.service.max(axis=2) + self.delay
        within = ahead[:, ::-1].cumsum(axis=1)[:, ::-1] - ahead + self.delay
        after = np.zeros(len(ahead))
        for lane in range(self.lanes):
            own = np.flatnonzero(self.lane == lane)
            later = self.alone_s[own][::-1].cumsum()[::-1] - self.alone_s[own]
            after[own] = later
        return frozen(within + after[:, None])

    @property
    def busiest_s(self) -> float:
        """Work of the busiest rank: no order is done earlier."""
        return float(self.work_s.max())

    @property
    def longest_lane_s(self) -> float:
        """The longest lane if it never waits: no order is done earlier."""
        return float(np.bincount(self.lane, weights=self.alone_s).max())

    @property
    def lower_bound_s(self) -> float:
        """The larger of the two bounds."""
        return max(self.busiest_s, self.longest_lane_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class QueueRun:
    """start, finish: float64[B] seconds of each micro-batch · busy: float64[R] seconds that each rank served."""

    start: FloatArray
    finish: FloatArray
    busy: FloatArray

    @property
    def makespan_s(self) -> float:
        """Until the last micro-batch is done."""
        return float(self.finish.max())

    @property
    def idle(self) -> FloatArray:
        """float64[R] share of the makespan in which each rank had nothing to do or to choose from."""
        return sealed(1.0 - self.busy / self.makespan_s if self.makespan_s else np.zeros_like(self.busy))


def run(jobs: Jobs, rule: str, *, heat_s: float = HEAT_S) -> QueueRun:
    """All micro-batches under one of `RULES`; the same for the same jobs. Raises `UsageError` for another rule."""
    if rule not in RULES:
        raise UsageError(f"no rule {rule!r}", where="layer queue", fix=f"use one of {', '.join(RULES)}")
    if heat_s <= 0:
        raise UsageError(f"heat falls in {heat_s:g} s", where="layer queue", fix="give a time > 0")
    start, finish, busy = kernels.load("auto").layer_queue(
        jobs.service, jobs.delay, jobs.lane, jobs.hot, jobs.tail, RULES.index(rule), float(heat_s)
    )
    return QueueRun(start=sealed(start), finish=sealed(finish), busy=sealed(busy))
