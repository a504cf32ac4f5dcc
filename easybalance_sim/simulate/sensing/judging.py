"""Hot-spot rules against what came next, on a trace under a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.load.hotspots import HISTORY, per_node
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.sensing.detectors import Detector, detectors
from easybalance_sim.simulate.sensing.series import Series, share
from easybalance_sim.simulate.sensing.tally import Looked, Score, Tally
from easybalance_sim.simulate.sensing.verdict import Verdict, judge
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads
from easybalance_sim.trace.dataset import unheard

THRESHOLDS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
FIRST_THRESHOLD = 1.2
FEWEST_HOT, MOST_HOT = 0.005, 0.25
"""Of (step, unit) pairs. A threshold that next to nothing stays over tests no rule, nor does one that is the rule."""
QUIET = 0.05
"""Of the mean traffic: steps before it has come up or after it has died down are not scored."""
MOST_CELLS = 1 << 22
"""Steps × experts that are looked at; of more layers every so many-th is."""
KINDS = ("rank of a layer", "rank heat", "node heat", "expert")


@dataclass(frozen=True, kw_only=True)
class DetectorRequest:
    """What to judge. kinds: of units, of `KINDS`; nodes need several · threshold: share of the mean that is hot, None =
    1.2, or the nearest of `THRESHOLDS` that neither next to nothing nor a quarter of all stays over · window_s, tau_s,
    ahead_s: seconds of a window, of the moving average, of what has to stay hot · trend_threshold: another one for the
    extrapolated share · first, end: places of the steps to score, None = all between the quiet ends · draws, seed: of
    redrawn traces."""

    kinds: tuple[str, ...] = KINDS
    threshold: float | None = None
    window_s: float = 0.3
    tau_s: float = 0.5
    ahead_s: float = 1.0
    trend_threshold: float | None = None
    first: int | None = None
    end: int | None = None
    draws: int = 500
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Rules on one kind of unit. units: how many · threshold: in force · hot: share of (step, unit) pairs that stay
    over it · scores: one per rule · correlation: of what sensors see with what comes · verdict: the best rule · note:
    what was left out, or empty."""

    name: str
    units: int
    threshold: float
    hot: float
    scores: tuple[Score, ...]
    correlation: dict[str, float]
    verdict: Verdict
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "units": self.units,
            "threshold": self.threshold,
            "hot_frac": self.hot,
            "rules": [score.to_dict() for score in self.scores],
            "correlation_with_next": self.correlation,
            "verdict": self.verdict.to_dict(),
            "note": self.note,
        }


@dataclass(frozen=True, kw_only=True)
class Detection:
    """Rules on all kinds of units. steps: that were scored, from place `first` · window, ahead: steps · step_s: seconds
    of one."""

    kinds: tuple[Kind, ...]
    first: int
    steps: int
    window: int
    ahead: int
    step_s: float

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "first_step": self.first,
            "steps": self.steps,
            "window_steps": self.window,
            "ahead_steps": self.ahead,
            "step_s": self.step_s,
            "kinds": {kind.name: kind.to_dict() for kind in self.kinds},
        }


def judge_detectors(
    steps: RecordedSteps,
    plan: Plan,
    node_of_rank: IntArray,
    request: DetectorRequest | None = None,
    advance: Callable[[int], None] = unheard,
    *,
    speed: FloatArray | None = None,
) -> Detection:
    """Run every rule on the loads that a plan makes of recorded steps; node_of_rank: int64[R] · speed: float64[R],
    None = all alike: a slow rank is hot with fewer tokens, since load counts by the time that it takes.

    Only steps already executed are seen, the truth is the load over the next `ahead_s`. advance: called with the series
    done. Raises `UsageError` for an unknown kind, or when the steps are too few for the rules' past and future.
    """
    asked = DetectorRequest() if request is None else request
    unknown = sorted(set(asked.kinds) - set(KINDS))
    if unknown:
        raise UsageError(f"unknown kind of unit {unknown[0]!r}", where="detectors", fix=f"choose {', '.join(KINDS)}")
    window, ahead = (max(1, round(seconds / steps.step_s)) for seconds in (asked.window_s, asked.ahead_s))
    first, end = scored_steps(steps, HISTORY * window, ahead, asked.first, asked.end)
    loads = rank_loads(steps.counts, plan)
    loads = loads if speed is None else loads * (speed.mean() / speed)
    kinds = []
    for name in asked.kinds:
        every, note = _every(name, len(steps), steps.layers, steps.meta.experts)
        series = list(_series(name, steps, loads, node_of_rank, every))
        if series:
            kinds.append(_kind(name, series, _Span(window, ahead, first, end, steps.step_s), asked, note, advance))
    return Detection(
        kinds=tuple(kinds), first=first, steps=end - first, window=window, ahead=ahead, step_s=steps.step_s
    )


@dataclass(frozen=True)
class _Span:
    window: int
    ahead: int
    first: int
    end: int
    step_s: float


def scored_steps(steps: RecordedSteps, past: int, ahead: int, first: int | None, end: int | None) -> tuple[int, int]:
    """The places of the steps from which `past` steps can be looked back and `ahead` forward, quiet ends left out
    unless a bound was given. Raises `UsageError` when there is none."""
    tokens = np.diff(steps.start).astype(np.float64)
    total = np.concatenate([[0.0], np.cumsum(tokens)])
    ends = np.arange(past, len(tokens) - ahead + 1)
    seen, coming = (total[ends] - total[ends - past]) / past, (total[ends + ahead] - total[ends]) / ahead
    busy = ends[np.minimum(seen, coming) >= QUIET * tokens.mean()] - 1
    low = (busy[0] if busy.size else past - 1) if first is None else max(first, past - 1)
    high = (busy[-1] + 1 if busy.size else 0) if end is None else min(end, len(tokens) - ahead)
    if low >= high:
        raise UsageError(
            f"{len(tokens)} steps are too few to look {past} back and {ahead} ahead",
            where="detectors",
            fix="give a longer trace, or shorter windows",
        )
    return int(low), int(high)


def _every(kind: str, steps: int, layers: int, experts: int) -> tuple[int, str]:
    """Of how many layers one is looked at, and the note that says so."""
    every = max(1, -(-steps * layers * experts // MOST_CELLS)) if kind == "expert" else 1
    return every, f"experts of one of {every} layers" if every > 1 else ""


def _series(kind: str, steps: RecordedSteps, loads: FloatArray, node_of_rank: IntArray, every: int) -> Iterator[Series]:
    """The series of a kind; none for nodes where there is one."""
    if kind == "expert":
        for layer in range(0, steps.layers, every):
            yield Series(steps.counts[:, layer].astype(np.float64))
    elif kind == "rank of a layer":
        for layer in range(steps.layers):
            yield Series(loads[:, layer])
    elif kind == "rank heat":
        yield Series(loads.sum(axis=1))
    elif int(node_of_rank.max()) > 0:
        yield Series(loads.sum(axis=1) @ per_node(node_of_rank))


def _kind(
    name: str, series: list[Series], span: _Span, asked: DetectorRequest, note: str, advance: Callable[[int], None]
) -> Kind:
    threshold = _threshold(series, span) if asked.threshold is None else asked.threshold
    tau_steps = max(1.0, asked.tau_s / span.step_s)
    looked = Looked(
        window=span.window,
        ahead=span.ahead,
        threshold=threshold,
        first=span.first,
        end=span.end,
        tau_steps=tau_steps,
    )
    rules: tuple[Detector, ...] = detectors(span.window, tau_steps, threshold, asked.trend_threshold)
    tally = Tally(rules, looked)
    for one in series:
        tally.add(one)
        advance(1)
    return Kind(
        name=name,
        units=tally.units,
        threshold=threshold,
        hot=tally.truth_share,
        scores=tally.scores(span.step_s),
        correlation=tally.correlation,
        verdict=judge(tally, HISTORY * span.window + span.ahead, asked.draws, asked.seed),
        note=note,
    )


def _threshold(series: list[Series], span: _Span) -> float:
    """`FIRST_THRESHOLD`, or a lower one while next to nothing stays over it, or a higher one while too much does."""
    hot, pairs = np.zeros(len(THRESHOLDS)), 0
    for one in series:
        coming = share(one.ahead(span.ahead))[span.first : span.end]
        hot += [(coming > threshold).sum() for threshold in THRESHOLDS]
        pairs += coming.size
    place = THRESHOLDS.index(FIRST_THRESHOLD)
    while place > 0 and hot[place] < FEWEST_HOT * pairs:
        place -= 1
    while place < len(THRESHOLDS) - 1 and hot[place] > MOST_HOT * pairs and hot[place + 1] >= FEWEST_HOT * pairs:
        place += 1
    return THRESHOLDS[place]
