"""Graded tiers: the hotter a rank, the more its experts' scores are cut; what stays too hot is taken out altogether.

Factors act on the router's score before the balancing bias, as a model's hook would apply them; a factor hits the best
experts most, which is why tiers cost more than an additive offset that moves as much. A queue between layers, which
graded schemes add in their middle tier, is a matter of time and not of routing: `simulate.layer_queue`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.controllers import HEAT, LAYER, error
from easybalance_sim.simulate.offsets.loop import Acting, Loop, Nudge, Sensor
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.quality.price import MULTIPLICATIVE
from easybalance_sim.simulate.rerouting.heat import (
    WINDOW_SENSOR,
    only_on,
    rank_excess,
    relative_threshold,
    require_signal,
)

HOLD_S, HEAVY_UTILISATION = 1.0, 0.9
"""Seconds above the heavy threshold before a rank is taken out, and the utilisation that the threshold stands for."""
LEAST_STEP = 0.01
"""By which the heavy threshold lies above the medium one."""


@dataclass(frozen=True, kw_only=True)
class Tiers:
    """tiers: (threshold, factor), rising; the highest one that a rank's windowed load / mean exceeds applies, of an
    expert with replicas that of the mean over their ranks · heavy: threshold above which for more than `hold` steps a
    rank gets no tokens, but for experts that have a replica elsewhere; None = never · signal: `LAYER` or `HEAT`."""

    tiers: tuple[tuple[float, float], ...]
    heavy: float | None = None
    hold: int = 40
    signal: str = HEAT

    families = (MULTIPLICATIVE,)
    sensor = WINDOW_SENSOR

    def __post_init__(self) -> None:
        require_signal(self.signal, "tiers")
        thresholds = [threshold for threshold, _ in self.tiers] + ([] if self.heavy is None else [self.heavy])
        rising = all(a < b for a, b in pairwise(thresholds))
        if not thresholds or not rising or thresholds[0] <= 0 or self.hold < 0:
            raise UsageError("thresholds must be above 0 and rise from tier to tier", where="tiers")
        if not all(0 < factor <= 1 for _, factor in self.tiers):
            raise UsageError("factors lie in (0, 1]", where="tiers")

    @property
    def name(self) -> str:
        """Such as "tiers heat 1.05 ×0.9, 1.2 out"."""
        parts = [f"{threshold:g} ×{factor:g}" for threshold, factor in self.tiers]
        parts += [] if self.heavy is None else [f"{self.heavy:g} out"]
        return f"tiers {self.signal} {', '.join(parts)}"

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        """See `Mechanism`."""
        return _Running(self, scores.bias, np.zeros((plan.layers, plan.ranks), np.int64))


class _Running(Acting):
    def __init__(self, tiers: Tiers, bias: AnyArray, above: IntArray) -> None:
        self.tiers, self.bias, self.above = tiers, bias, above

    def nudge(self, sensor: Sensor) -> Nudge | None:
        if not sensor.known:
            return None
        heat = 1.0 + error(self.tiers.signal, sensor)
        factor = np.ones_like(heat)
        for threshold, cut in self.tiers.tiers:
            factor[heat > threshold] = cut
        return Nudge(factor=factor, offset=-self.bias * (1.0 - factor), allowed=~self._out(sensor))

    def _out(self, sensor: Sensor) -> BoolArray:
        """bool[L, E] experts that get no tokens."""
        if self.tiers.heavy is None:
            return np.zeros(self.bias.shape, np.bool_)
        heat = 1.0 + rank_excess(self.tiers.signal, sensor)
        self.above = np.where(heat > self.tiers.heavy, self.above + 1, 0)
        return only_on(self.above > self.tiers.hold, sensor.shares)


def graded(
    signal: str,
    step_s: float,
    thresholds: Sequence[float] = (1.05, 1.10, 1.20),
    mean_utilisation: float | None = None,
) -> Tiers:
    """Light ×0.9, medium ×0.8, and out after a second, as EasyBalance's author describes them ("10 %", "20 %", full
    re-routing above a utilisation of 90 %).

    thresholds: of load / mean; a single layer's are better higher (1.05, 1.15, 1.30) · mean_utilisation: of the ranks;
    where given, it says at what load / mean a rank is used to 90 %.
    """
    light, medium, heavy = thresholds
    if mean_utilisation is not None:
        heavy = max(relative_threshold(HEAVY_UTILISATION, mean_utilisation), medium + LEAST_STEP)
    return Tiers(
        tiers=((light, 0.9), (medium, 0.8)), heavy=heavy, hold=max(1, round(HOLD_S / step_s)), signal=signal
    )  # fmt: skip


def full_rerouting(signal: str = LAYER, threshold: float = 1.3, hold: int = 0) -> Tiers:
    """The most intrusive form: a hot rank gets no tokens until its window has cooled down."""
    return Tiers(tiers=(), heavy=threshold, hold=hold, signal=signal)
