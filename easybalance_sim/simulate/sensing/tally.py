"""Counts how often rules are right, step by step, so that any stretch of steps can be scored afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, IntArray
from easybalance_sim.simulate.sensing.detectors import Detector, extrapolated
from easybalance_sim.simulate.sensing.series import Series, share

SENSORS = ("last window", "last 3 windows", "moving average", "trend")
"""What a rule may look at; their correlation with what comes says which is worth looking at."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One rule on one kind of unit.

    fires: share of (step, unit) pairs that it calls hot · precision: of these, share that stays hot · recall: of what
    stays hot, share that it calls · f1: harmonic mean of both · false_fires: pairs called hot that do not stay so ·
    suppressed: false pairs of the article's rule that this one does not call, suppressed_share of all of those ·
    added: false pairs of this rule that the article's did not call · onsets_per_minute: times that a unit becomes hot,
    mean over units · kept: share of the excess over the mean at the time of calling that is there in what comes, NaN
    when it never fires.
    """

    rule: str
    says: str
    fires: float
    precision: float
    recall: float
    f1: float
    false_fires: int
    suppressed: int
    suppressed_share: float
    added: int
    onsets_per_minute: float
    kept: float

    def to_dict(self) -> dict[str, float | int | str | None]:
        """For reports; what is not a number is None."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Where a tally looks. window, ahead: steps of a window and of what comes · threshold: of what stays hot ·
    first, end: steps that are scored · tau_steps: of the average among `SENSORS`."""

    window: int
    ahead: int
    threshold: float
    first: int
    end: int
    tau_steps: float

    @property
    def rows(self) -> slice:
        """The scored steps."""
        return slice(self.first, self.end)


class Tally:
    """What rules did on all series added so far; the first rule is the one that the others are held against."""

    def __init__(self, rules: Sequence[Detector], looked: Looked) -> None:
        self.rules, self.looked = tuple(rules), looked
        steps = looked.end - looked.first
        self.units = 0
        self.truth: IntArray = np.zeros(steps, np.int64)
        self.fires, self.hits, self.suppressed, self.onsets = (np.zeros((len(rules), steps), np.int64) for _ in "1234")
        self._excess: FloatArray = np.zeros((len(rules), 2))
        self._moments = [_Moments() for _ in SENSORS]

    def add(self, series: Series) -> None:
        """Run every rule on the units of one more series."""
        look, rows = self.looked, self.looked.rows
        coming = share(series.ahead(look.ahead))[rows]
        truth = coming > look.threshold
        self.units += series.loads.shape[1]
        self.truth += truth.sum(axis=1)
        sensed = _sensed(series, look)
        now = sensed[0][rows]
        reference: BoolArray = np.zeros_like(truth)
        for place, rule in enumerate(self.rules):
            whole = rule.fires(series)
            fired = whole[rows]
            reference = fired & ~truth if place == 0 else reference
            self.fires[place] += fired.sum(axis=1)
            self.hits[place] += (fired & truth).sum(axis=1)
            self.suppressed[place] += (reference & ~fired).sum(axis=1)
            self.onsets[place] += _onsets(whole)[rows].sum(axis=1)
            self._excess[place] += (now[fired] - 1).sum(), (coming[fired] - 1).sum()
        for moments, values in zip(self._moments, sensed, strict=True):
            moments.add(values[rows], coming)

    @property
    def truth_share(self) -> float:
        """Share of (step, unit) pairs that stay hot."""
        return float(self.truth.sum() / max(1, self.units * len(self.truth)))

    @property
    def correlation(self) -> dict[str, float]:
        """Pearson's r of each of `SENSORS` with what comes, over all steps and units, 0 without variance."""
        return {name: moments.correlation for name, moments in zip(SENSORS, self._moments, strict=True)}

    def scores(self, step_s: float) -> tuple[Score, ...]:
        """Of every rule over all scored steps; step_s: seconds of a step."""
        return tuple(self._score(place, step_s) for place in range(len(self.rules)))

    def f1(self, block: IntArray, times: IntArray) -> FloatArray:
        """float64[rules, D] in traces made of blocks. block: int64[steps] of each scored step · times: int64[B, D] how
        often each block is in each trace."""
        rows = np.concatenate([self.truth[None], self.fires, self.hits])
        by_block = np.stack([np.bincount(block, weights=row, minlength=len(times)) for row in rows])
        summed = by_block @ times.astype(np.float64)
        rules = len(self.rules)
        return _over(2.0 * summed[1 + rules :], summed[1 : 1 + rules] + summed[0])

    def _score(self, place: int, step_s: float) -> Score:
        pairs = self.units * len(self.truth)
        called, right = int(self.fires[place].sum()), int(self.hits[place].sum())
        hot, suppressed = int(self.truth.sum()), int(self.suppressed[place].sum())
        of_article = int(self.fires[0].sum() - self.hits[0].sum())
        before, after = self._excess[place]
        return Score(
            rule=self.rules[place].name,
            says=self.rules[place].says,
            fires=called / max(1, pairs),
            precision=right / max(1, called),
            recall=right / max(1, hot),
            f1=2 * right / max(1, called + hot),
            false_fires=called - right,
            suppressed=suppressed,
            suppressed_share=suppressed / max(1, of_article),
            added=called - right - (of_article - suppressed),
            onsets_per_minute=float(self.onsets[place].sum()) * 60 / max(step_s, pairs * step_s),
            kept=float(after / before) if before > 0 else float("nan"),
        )


class _Moments:
    """Running sums of pairs, from which their correlation follows."""

    def __init__(self) -> None:
        self._sums: FloatArray = np.zeros(6)

    def add(self, one: FloatArray, other: FloatArray) -> None:
        # Both are shares around 1: taken from there the squares do not cancel.
        x, y = one.ravel() - 1, other.ravel() - 1
        self._sums += np.array([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])

    @property
    def correlation(self) -> float:
        n, x, y, xx, yy, xy = (float(value) for value in self._sums)
        spread = (n * xx - x * x) * (n * yy - y * y)
        return (n * xy - x * y) / spread**0.5 if spread > 0 else 0.0


def _sensed(series: Series, look: Looked) -> tuple[FloatArray, ...]:
    """float64[S, U] of each of `SENSORS`."""
    return (
        share(series.recent(look.window)),
        share(series.recent(3 * look.window)),
        share(series.averaged(look.tau_steps)),
        extrapolated(series, look.window),
    )


def _onsets(fired: BoolArray) -> BoolArray:
    """bool[S, U] where a unit is called hot that was not so the step before."""
    begun: BoolArray = fired.copy()
    begun[1:] &= ~fired[:-1]
    return begun


def _over(part: AnyArray, whole: AnyArray) -> FloatArray:
    out: FloatArray = np.zeros(part.shape)
    np.divide(part, whole, out=out, where=whole > 0)
    return out
