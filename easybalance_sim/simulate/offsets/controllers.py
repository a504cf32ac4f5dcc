"""Laws that turn sensed loads into an offset of the score by which experts are chosen; gate weights stay as they are.

Error z = windowed load / mean - 1, relative, of the expert itself, of its rank in this layer, or of its rank over all
layers ("heat"); an expert with replicas sees the mean over them, so replicas damp the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.loop import Acting, Loop, Nudge, Sensor
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.steps.balance import relative

LAYER, HEAT, EXPERT = "layer", "heat", "expert"
SIGNALS = (LAYER, HEAT, EXPERT)
P, I, PI, SIGN, MAX = "P", "I", "PI", "sign", "max"  # noqa: E741 — the laws' own names
LAWS = (P, I, PI, SIGN, MAX)
WITHOUT_LIMIT = (SIGN, MAX)
"""Not linear, so that no largest stable gain exists."""

CLIP_GAPS = 1.5
"""A clip in median gaps between the last chosen and the next score: what bounded the damage of an unstable loop to a
twentieth on a 14 M model (0.03 with a gap of 0.0185)."""

_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Controller:
    """One law on one signal. P: offset = gain · z · I: offset = leak · offset + integral · z · PI: both · sign: offset
    += gain · sign(z), the bias update of auxiliary-loss-free balancing (arXiv 2408.15664) · max: gain · z / max|z|, the
    max-normalised form with its alpha as gain. clip: largest |offset|, also of what an integral holds; None = 1.5
    median gaps of the router that it acts on · clipped: False only for comparisons, never for what is offered."""

    law: str
    signal: str
    gain: float = 0.0
    integral: float = 0.0
    leak: float = 1.0
    clip: float | None = None
    clipped: bool = True

    def __post_init__(self) -> None:
        if self.law not in LAWS or self.signal not in SIGNALS:
            raise UsageError(
                f"no controller {self.signal} {self.law}",
                fix=f"one of {', '.join(SIGNALS)} and one of {', '.join(LAWS)}",
            )
        if min(self.gain, self.integral) < 0 or not 0 < self.leak <= 1 or (self.clip is not None and self.clip <= 0):
            raise UsageError("gains must be 0 or more, the leak in (0, 1], the clip above 0", where=self.name)

    @property
    def name(self) -> str:
        """Such as "layer P g=0.1"."""
        proportional = {P: "g", PI: "g", SIGN: "eta", MAX: "alpha"}.get(self.law)
        parts = [f"{proportional}={self.gain:.3g}"] if proportional else []
        parts += [f"ki={self.integral:.3g}"] if self.law in (I, PI) else []
        parts += [f"leak={self.leak:g}"] if self.leak < 1 else []
        parts += [] if self.clipped else ["without clip"]
        return " ".join([self.signal, self.law, *parts])

    @property
    def has_limit(self) -> bool:
        """Whether a linear stability limit exists for it."""
        return self.law not in WITHOUT_LIMIT

    def scaled(self, factor: float) -> Controller:
        """The same law with all gains times a factor."""
        return replace(self, gain=self.gain * factor, integral=self.integral * factor)

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        """See `Mechanism`."""
        most = CLIP_GAPS * scores.gap if self.clip is None else self.clip
        return _Running(self, np.zeros((plan.layers, plan.experts)), most if self.clipped else np.inf)


class _Running(Acting):
    def __init__(self, law: Controller, held: FloatArray, most: float) -> None:
        self.law, self.held, self.most = law, held, most

    def nudge(self, sensor: Sensor) -> Nudge:
        z = error(self.law.signal, sensor)
        if self.law.law == SIGN:
            self.held = self._clipped(self.held + self.law.gain * np.sign(z) * (np.abs(z) > _ROUNDING))
        elif self.law.integral:
            self.held = self._clipped(self.law.leak * self.held + self.law.integral * z)
        return Nudge(offset=self._clipped(self.held + self._direct(z)))

    def _direct(self, z: FloatArray) -> FloatArray:
        if self.law.law == MAX:
            largest = np.abs(z).max()
            return self.law.gain * z / largest if largest > 0 else z
        return self.law.gain * z if self.law.law in (P, PI) else np.zeros_like(z)

    def _clipped(self, offset: FloatArray) -> FloatArray:
        return np.clip(offset, -self.most, self.most)


def error(signal: str, sensor: Sensor) -> FloatArray:
    """float64[L, E] relative error of the sensed window for every expert; 0 before anything is known."""
    if signal == EXPERT:
        return relative(sensor.expert_loads())
    loads = sensor.rank_loads()
    z = relative(loads) if signal == LAYER else np.broadcast_to(relative(loads.sum(axis=0)), loads.shape)
    of_expert: FloatArray = np.matmul(sensor.shares, z[:, :, None])[:, :, 0]
    return of_expert
