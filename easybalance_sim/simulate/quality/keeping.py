"""Runs a mechanism and keeps the offsets that it ended with, which a lossy file holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.loop import Acting, Loop, Mechanism, Nudge, Outcome, Sensor, Sent, StepTokens, run
from easybalance_sim.simulate.offsets.scores import Scores


def run_keeping_offsets(
    mechanism: Mechanism, scores: Scores, plan: Plan, loop: Loop | None = None
) -> tuple[Outcome, FloatArray]:
    """What `offsets.loop.run` returns, and float64[L, E] the offsets of the last step, 0 where there were none."""
    keeper = _Keeper(inner=mechanism)
    outcome = run(keeper, scores, plan, loop)
    last = keeper.offsets[-1] if keeper.offsets else np.zeros((plan.layers, plan.experts))
    return outcome, frozen(last, np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Keeper:
    """The mechanism itself. offsets: of the last step alone."""

    inner: Mechanism
    offsets: list[FloatArray] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.inner.name

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        return _Running(self.inner.start(plan, scores, loop), self.offsets)


class _Running(Acting):
    def __init__(self, inner: Acting, offsets: list[FloatArray]) -> None:
        self.inner, self.offsets = inner, offsets

    def nudge(self, sensor: Sensor) -> Nudge | None:
        nudge = self.inner.nudge(sensor)
        self.offsets.clear()
        if nudge is not None and nudge.offset is not None:
            self.offsets.append(np.asarray(nudge.offset, np.float64))
        return nudge

    def act(self, step: StepTokens, experts: Int32Array) -> Sent:
        return self.inner.act(step, experts)
