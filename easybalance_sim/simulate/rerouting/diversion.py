"""A share of the tokens, drawn at random, is sent away from hot ranks: the literal reading of "move 10 %".

A token that is drawn in a layer chooses among the experts that are not on hot ranks, its best one included: that is
what makes it dear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import BoolArray, Int32Array, frozen, stream
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.controllers import HEAT
from easybalance_sim.simulate.offsets.loop import Acting, Loop, Nudge, Sensor, Sent, StepTokens
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.quality.price import DIVERSION
from easybalance_sim.simulate.rerouting.heat import WINDOW_SENSOR, only_on, rank_excess, require_signal


@dataclass(frozen=True, kw_only=True)
class Diversion:
    """share: of tokens, drawn anew in every layer · threshold: of windowed load / mean above which a rank is hot ·
    signal: `LAYER` or `HEAT` · seed: of the draw."""

    share: float
    threshold: float = 1.05
    signal: str = HEAT
    seed: int = 0

    families = (DIVERSION,)
    sensor = WINDOW_SENSOR

    def __post_init__(self) -> None:
        require_signal(self.signal, "diversion")
        if not 0 < self.share <= 1 or self.threshold <= 0:
            raise UsageError("the share lies in (0, 1], the threshold above 0", where="diversion")

    @property
    def name(self) -> str:
        """Such as "divert 10 % heat > 1.05"."""
        return f"divert {100 * self.share:g} % {self.signal} > {self.threshold:g}"

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        """See `Mechanism`."""
        return _Running(self, scores)


class _Running(Acting):
    def __init__(self, diversion: Diversion, scores: Scores) -> None:
        self.diversion, self.scores = diversion, scores
        self.draw = stream(diversion.seed, "diversion")
        shape = (scores.layers, scores.experts)
        self.unmoved = frozen(np.zeros(shape), np.float32), frozen(np.ones(shape), np.float32)
        self.hot: BoolArray = np.zeros(shape, np.bool_)

    def nudge(self, sensor: Sensor) -> Nudge | None:
        ranks = 1.0 + rank_excess(self.diversion.signal, sensor) > self.diversion.threshold
        self.hot = only_on(ranks, sensor.shares)
        return None

    def act(self, step: StepTokens, experts: Int32Array) -> Sent:
        drawn = self.draw.random(experts.shape[:2]) < self.diversion.share
        if not self.hot.any() or not drawn.any():
            return Sent(experts=experts)
        offset, factor = self.unmoved
        away = self.scores.routed(step.scores, step.first, offset, factor, frozen(~self.hot))
        return Sent(experts=np.where((drawn & self.hot.any(axis=1))[:, :, None], away, experts))
