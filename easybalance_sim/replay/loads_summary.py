"""Sums up the loads of all steps, by phase and layer, in memory that does not grow with the trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.profiling import alpha
from easybalance_sim.replay.loads import PHASE_NAMES, StepLoads

_EXACT_BITS = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Of one measure over steps and ranks, for each layer and, last, all layers: float64[L+1] each."""

    mean: FloatArray
    p50: FloatArray
    p99: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerLaw:
    """The fit of `profiling.alpha` for each layer and, last, all layers together: float64[L+1] each.

    gini, busiest: of the recorded steps (busiest expert over mean expert) · drawn_busiest: of draws with alpha ·
    alpha_of_busiest: with which draws have the recorded busiest expert.
    """

    alpha: FloatArray
    alpha_of_busiest: FloatArray
    gini: FloatArray
    busiest: FloatArray
    drawn_busiest: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseLoads:
    """One phase. tokens: `Spread` over steps, one value each · measures: by the field of `StepLoads`."""

    phase: str
    steps: int
    tokens: Spread
    measures: dict[str, Spread]
    power_law: PowerLaw


class Summary:
    """Adds up loads of single steps of a model with L layers and E experts."""

    def __init__(self, layers: int, experts: int, top_k: int) -> None:
        self._layers, self._experts, self._top_k = layers, experts, top_k
        self._phases: dict[int, _Phase] = {}

    def add(self, loads: StepLoads) -> None:
        """Add steps."""
        for code in np.unique(loads.phase).tolist():
            if code not in self._phases:
                self._phases[code] = _Phase(self._layers)
            self._phases[code].add(loads, loads.phase == code)

    def phases(self) -> list[PhaseLoads]:
        """Every phase that occurred."""
        return [
            one.described(PHASE_NAMES[code], self._experts, self._top_k) for code, one in sorted(self._phases.items())
        ]


MEASURES = ("local_tokens", "activated")


class _Phase:
    def __init__(self, layers: int) -> None:
        self.steps = 0
        self.tokens = _Histogram(1)
        self.measures = {name: _Histogram(layers) for name in MEASURES}
        self.sizes: list[int] = []
        self.counted, self.uneven, self.peaks = (np.zeros(layers) for _ in range(3))

    def add(self, loads: StepLoads, mine: np.typing.NDArray[np.bool_]) -> None:
        self.steps += int(mine.sum())
        self.tokens.add(loads.tokens[mine][:, None, None])
        for name, histogram in self.measures.items():
            histogram.add(getattr(loads, name)[mine])
        counts = loads.expert_tokens[mine[loads.sampled]]
        known = counts.any(axis=2)
        self.counted += known.sum(axis=0)
        self.uneven += np.where(known, alpha.gini(counts), 0).sum(axis=0)
        self.peaks += np.where(known, alpha.busiest(counts), 0).sum(axis=0)
        self.sizes += np.rint(loads.tokens[mine & loads.sampled]).astype(int).tolist()

    def described(self, phase: str, experts: int, top_k: int) -> PhaseLoads:
        return PhaseLoads(
            phase=phase,
            steps=self.steps,
            tokens=self.tokens.spread(),
            measures={name: histogram.spread() for name, histogram in self.measures.items()},
            power_law=self._power_law(experts, top_k),
        )

    def _power_law(self, experts: int, top_k: int) -> PowerLaw:
        uneven, peaks = (_means(sums, self.counted) for sums in (self.uneven, self.peaks))
        sizes = np.array([size for size in self.sizes if size > 0], np.int64)
        if not len(sizes):
            unknown = np.full(len(uneven), np.nan)
            return PowerLaw(alpha=unknown, alpha_of_busiest=unknown, gini=uneven, busiest=peaks, drawn_busiest=unknown)
        curve = alpha.curve(sizes, experts, top_k)
        fitted = curve.alpha_of(uneven)
        return PowerLaw(
            alpha=fitted,
            alpha_of_busiest=curve.alpha_of_busiest(peaks),
            gini=uneven,
            busiest=peaks,
            drawn_busiest=curve.busiest_at(fitted),
        )


def _means(sums: FloatArray, counted: FloatArray) -> FloatArray:
    """float64[L+1] means of each layer and of all together; NaN where nothing was counted."""
    both, times = (np.append(values, values.sum()) for values in (sums, counted))
    unknown = np.full(len(both), np.nan)
    means: FloatArray = np.divide(both, times, out=unknown, where=times > 0)
    return means


class _Histogram:
    """Values ≥ 0 of each layer: numbers below 1,024 whole, larger ones to 0.1 %."""

    def __init__(self, layers: int) -> None:
        self.counts: IntArray = np.zeros((layers, 1), np.int64)
        self.sums = np.zeros(layers)

    def add(self, values: FloatArray) -> None:
        """values: float64[W, L, R]."""
        if not values.size:
            return
        layers, place = values.shape[1], _bin(values)
        width = max(self.counts.shape[1], int(place.max()) + 1)
        flat = place + np.arange(layers)[:, None] * width
        found = np.bincount(flat.ravel(), minlength=layers * width).reshape(layers, width)
        found[:, : self.counts.shape[1]] += self.counts
        self.counts = found
        self.sums += values.sum(axis=(0, 2))

    def spread(self) -> Spread:
        every = np.vstack([self.counts, self.counts.sum(axis=0)])
        total = every.sum(axis=1)
        return Spread(
            mean=np.append(self.sums, self.sums.sum()) / np.maximum(total, 1),
            p50=_quantile(every, total, 0.5),
            p99=_quantile(every, total, 0.99),
        )


def _bin(values: FloatArray) -> IntArray:
    """int64[…] the bin of each value: as many bins for every doubling as there are numbers below the first."""
    rounded = np.rint(values).astype(np.int64)
    shift = np.maximum(0, np.frexp(rounded.astype(np.float64))[1].astype(np.int64) - _EXACT_BITS)
    return (shift << (_EXACT_BITS - 1)) + (rounded >> shift)


def _value(bins: IntArray) -> FloatArray:
    """float64[…] the middle of each bin."""
    half = 1 << (_EXACT_BITS - 1)
    shift = np.maximum(0, bins // half - 1)
    return ((bins - (shift << (_EXACT_BITS - 1))) << shift) + ((1 << shift) - 1) / 2


def _quantile(counts: IntArray, total: IntArray, part: float) -> FloatArray:
    """float64[L] the smallest value that at least this part of the values do not exceed."""
    reached = np.cumsum(counts, axis=1) >= np.ceil(part * total)[:, None]
    return _value(reached.argmax(axis=1))
