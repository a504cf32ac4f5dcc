"""Will an offset help at all: how much of the next step's rank load the sensor's window explains.

A loop can only even out what it can foresee. On a 14 M model at 106 tokens per step the window explained 7 % of the
next step and no gain helped single steps; with eight times the traffic 26 %, and the rule of thumb below told the best
step balance of both within 0.01.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.loop import Loop
from easybalance_sim.simulate.steps.balance import ratio, relative, window_sums
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads

HELPS_FROM = 0.15
"""R² from which an offset takes a visible part (8 %) of the excess of single steps, by the rule of thumb."""

COPIES, SHIFT = (2, 4, 8), 40
"""Copies of the steps laid over each other, each this many steps later: the same drift with more traffic."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Regression of a step's relative rank load on that of the window that a sensor knows before it.

    r2: share of the variance explained, below 0 never · slope: part of the windowed error that stays · variance: mean
    square of the step's error.
    """

    r2: float
    slope: float
    variance: float

    def to_dict(self) -> dict[str, float]:
        """For reports."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Predictability:
    """layer: of ranks in a layer · heat: of ranks over all layers · copies: R² of layer with so many times the traffic
    · step_mean: max/mean of single steps now · step_floor: what it may fall to at best, 1 + sqrt(1 - R²) · excess."""

    layer: Forecast
    heat: Forecast
    copies: dict[int, Forecast]
    step_mean: float
    step_floor: float

    @property
    def helps(self) -> bool:
        """Whether offsets can even out single steps."""
        return self.layer.r2 >= HELPS_FROM

    @property
    def verdict(self) -> str:
        """One line."""
        explained = f"the sensed window explains {self.layer.r2:.0%} of the next step's rank load"
        best = f"at best max/mean {self.step_mean:.3f} → {self.step_floor:.3f}"
        if self.helps:
            return f"{explained}: offsets can even out single steps ({best})"
        more = next(
            (f"; with {n} times the traffic they can" for n, f in self.copies.items() if f.r2 >= HELPS_FROM), ""
        )
        return f"offsets cannot help single steps here: {explained} ({best}), only windows get more even{more}"

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "verdict": self.verdict,
            "helps": self.helps,
            "layer": self.layer.to_dict(),
            "heat": self.heat.to_dict(),
            "copies": {str(n): one.to_dict() for n, one in self.copies.items()},
            "step_mean": self.step_mean,
            "step_floor": self.step_floor,
        }


def predictability(
    steps: RecordedSteps, plan: Plan, loop: Loop, *, copies: Sequence[int] = COPIES, shift: int = SHIFT
) -> Predictability:
    """Of recorded steps as they ran, the warm-up left out. Copies that leave fewer than 100 steps are not reported."""
    loads = rank_loads(steps.counts, plan)
    layer = forecast(loads, loop)
    step_mean = float(np.nanmean(ratio(loads[min(loop.warm_up, len(loads) - 1) :])))
    laid = {n: _laid_over(loads, n, shift) for n in copies if len(loads) - shift * (n - 1) - loop.warm_up >= 100}
    return Predictability(
        layer=layer,
        heat=forecast(loads.sum(axis=1, keepdims=True), loop),
        copies={n: forecast(more, loop) for n, more in laid.items()},
        step_mean=step_mean,
        step_floor=1 + math.sqrt(1 - layer.r2) * (step_mean - 1),
    )


def forecast(loads: FloatArray, loop: Loop) -> Forecast:
    """Of loads float64[S, L, R]: z(step) = slope · z(window), through the origin since both have mean 0."""
    first = max(loop.warm_up, loop.window + loop.delay - 1)
    steps = np.arange(first, len(loads))
    if not len(steps):
        return Forecast(r2=0.0, slope=0.0, variance=0.0)
    now = relative(loads)[steps]
    known = relative(window_sums(loads, loop.window))[steps - loop.delay - loop.window + 1]
    both, seen, power = float((now * known).sum()), float((known * known).sum()), float((now * now).sum())
    if not seen or not power:
        return Forecast(r2=0.0, slope=0.0, variance=0.0)
    return Forecast(r2=both * both / (seen * power), slope=both / seen, variance=power / now.size)


def _laid_over(loads: FloatArray, copies: int, shift: int) -> FloatArray:
    length = len(loads) - shift * (copies - 1)
    total: FloatArray = np.sum([loads[shift * n : shift * n + length] for n in range(copies)], axis=0)
    return total
