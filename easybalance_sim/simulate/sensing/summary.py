"""What sensors show of a trace under a plan: series for a figure, and per rank and node what was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.load.hotspots import per_node
from easybalance_sim.simulate.sensing.metrics import (
    METRICS,
    Clock,
    Served,
    StepWork,
    clock_of,
    moving,
    rank_metrics,
    saturated_clock,
    step_work,
)
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.dataset import unheard

PERCENTILE = 99.0
_ROUNDING_S = 1e-9


@dataclass(frozen=True, kw_only=True)
class SensingRequest:
    """clock_s: seconds of a tick · fast_s: of the window that says how hot it is · trend_s: of the one that says where
    it goes (the article: 50 ms, 200 to 500 ms, 0.5 to 1 s) · saturated: steps do not wait for their recorded time ·
    other_s: seconds of a step outside its MoE layers, for saturated steps."""

    clock_s: float = 0.05
    fast_s: float = 0.3
    trend_s: float = 1.0
    saturated: bool = False
    other_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One metric over ranks, or over nodes per rank of each, in fast windows. mean, p99, highest: over ticks and units
    · by_unit: mean of each · hottest: unit with the highest mean · ratio: its mean over the mean of all, 1 without load
    · peak_ratio: 99th percentile over ticks of the highest over the mean of all."""

    mean: float
    p99: float
    highest: float
    by_unit: tuple[float, ...]
    hottest: int
    ratio: float
    peak_ratio: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensing:
    """What was seen.

    tick_s, ticks: the clock · series: float64[ticks, R] of each metric, unsmoothed · fast, trend: the same, averaged
    over the last ticks · ranks, nodes: of each metric · agreement: share of ticks at which the rank that is hottest by
    tokens is so by another metric too · step_s: mean seconds of a step as recorded, moe_s: of its MoE layers by the
    cost model · late: share of steps that began later than recorded because those before were not
    done, 0 when saturated.
    """

    tick_s: float
    ticks: int
    series: dict[str, FloatArray]
    fast: dict[str, FloatArray]
    trend: dict[str, FloatArray]
    ranks: dict[str, Seen]
    nodes: dict[str, Seen]
    agreement: dict[str, float]
    step_s: float
    moe_s: float
    late: float

    def to_dict(self, *, series: bool = False) -> dict[str, Any]:
        """For reports; series: with what a figure needs, metric × window × tick × rank."""
        out: dict[str, Any] = {
            "clock": {"tick_s": self.tick_s, "ticks": self.ticks},
            "step_s": self.step_s,
            "moe_s": self.moe_s,
            "late_frac": self.late,
            "ranks": {name: asdict(seen) for name, seen in self.ranks.items()},
            "nodes": {name: asdict(seen) for name, seen in self.nodes.items()},
            "hottest_rank_agrees_frac": self.agreement,
        }
        if series:
            windows = {"tick": self.series, "fast": self.fast, "trend": self.trend}
            out["series"] = {
                name: {window: values[name].tolist() for window, values in windows.items()} for name in METRICS
            }
        return out


def sense(
    steps: RecordedSteps,
    served: Served,
    node_of_rank: IntArray,
    request: SensingRequest | None = None,
    advance: Callable[[int], None] = unheard,
) -> Sensing:
    """Watch recorded steps being served; node_of_rank: int64[R]; advance: called with the steps done.

    Raises `UsageError` for a clock or windows that make no sense.
    """
    asked = SensingRequest() if request is None else request
    if not 0 < asked.clock_s <= asked.fast_s <= asked.trend_s:
        raise UsageError(
            f"{asked.clock_s:g}, {asked.fast_s:g} and {asked.trend_s:g} s are no clock, fast and trend window",
            where="sensing",
            fix="each must be at least as long as the one before",
        )
    work = step_work(steps, served, advance)
    clock = _clock(steps, work, asked)
    series = rank_metrics(work, clock, served)
    fast, trend = (
        {name: moving(values, max(1, round(seconds / asked.clock_s))) for name, values in series.items()}
        for seconds in (asked.fast_s, asked.trend_s)
    )
    by_node = per_node(node_of_rank)
    return Sensing(
        tick_s=asked.clock_s,
        ticks=clock.ticks,
        series=series,
        fast=fast,
        trend=trend,
        ranks={name: _seen(values) for name, values in fast.items()},
        nodes={name: _seen(values @ by_node) for name, values in fast.items()},
        agreement=_agreement(fast),
        step_s=steps.step_s,
        moe_s=float(work.layer_s.mean()),
        late=0.0 if asked.saturated else float((clock.begin > _due(steps) + _ROUNDING_S).mean()),
    )


def _clock(steps: RecordedSteps, work: StepWork, asked: SensingRequest) -> Clock:
    if asked.saturated:
        return saturated_clock(work.layer_s + asked.other_s, asked.clock_s)
    return clock_of(steps, work.layer_s, asked.clock_s)


def _due(steps: RecordedSteps) -> FloatArray:
    """float64[S] seconds at which each step was recorded."""
    due: FloatArray = (steps.step - steps.step[0]) * steps.step_s
    return due


def _seen(values: FloatArray) -> Seen:
    """Of float64[ticks, U]."""
    by_unit, all_units = values.mean(axis=0), values.mean(axis=1)
    mean = float(by_unit.mean())
    hottest = int(by_unit.argmax())
    busy = all_units > 0
    peaks = values[busy].max(axis=1) / all_units[busy]
    return Seen(
        mean=mean,
        p99=float(np.percentile(values, PERCENTILE)),
        highest=float(values.max()),
        by_unit=tuple(by_unit.tolist()),
        hottest=hottest,
        ratio=float(by_unit[hottest] / mean) if mean > 0 else 1.0,
        peak_ratio=float(np.percentile(peaks, PERCENTILE)) if busy.any() else 1.0,
    )


def _agreement(fast: dict[str, FloatArray]) -> dict[str, float]:
    first, *others = METRICS
    hottest = fast[first].argmax(axis=1)
    return {name: float((fast[name].argmax(axis=1) == hottest).mean()) for name in others if fast[name].any()}
