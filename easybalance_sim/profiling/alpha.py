"""The exponent of the power law whose draws are as uneven as a recorded load.

Simulators that know no trace draw the tokens of the experts from a power law (`draws`). Here the exponent alpha is the
one with which the mean Gini coefficient of the expert counts of a step, over all steps, is that of draws with as many
tokens. It is the Gini coefficient because that looks at all experts: the busiest one alone is noise in small steps.
What chance alone adds in small steps is in the recorded counts, and so in alpha. Recorded loads are no power law,
though: their busiest expert is hotter than that of draws as uneven in all, so the alpha that fits it is found too.

alpha 0 stands for balanced loads there, not for a draw, so loads that are more even than draws with alpha 0 get 0. From
about 1.4 on draws become more even again (most experts are at the lower end), so that is where the search ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, frozen, stream
from easybalance_sim.profiling.draws import Recipe, completed, power_law

DRAWN_EXPERTS = 1 << 16
"""Experts of all draws of one step size and one alpha together."""
SIZES = 8
"""Step sizes that stand for all of a trace: the middles of so many equal parts of its steps."""
_LEAST = 1e-4
_STEP = 0.05
_END = 1.6


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Draws over steps of a trace's sizes. alpha: float64[A] rising · gini: float64[A] mean of the draws, rising ·
    busiest: float64[A] mean of the busiest expert's tokens over the mean expert's, never falling."""

    alpha: FloatArray
    gini: FloatArray
    busiest: FloatArray

    def alpha_of(self, gini: FloatArray) -> FloatArray:
        """float64[…] the alpha with this mean Gini, at most the curve's last; NaN stays."""
        found: FloatArray = np.interp(gini, self.gini, self.alpha)
        return found

    def alpha_of_busiest(self, busiest: FloatArray) -> FloatArray:
        """float64[…] the alpha with this busiest expert over mean expert, at most the curve's last; NaN stays."""
        found: FloatArray = np.interp(busiest, self.busiest, self.alpha)
        return found

    def busiest_at(self, alpha: FloatArray) -> FloatArray:
        """float64[…] busiest expert over mean expert in draws with this alpha; of alpha 0 that of the draws."""
        found: FloatArray = np.interp(alpha, self.alpha, self.busiest)
        return found


def curve(step_tokens: IntArray, experts: int, top_k: int, seed: int = 0) -> Curve:
    """What to expect of draws for steps like these; step_tokens: int64[W] tokens of each, at least one step.

    The random numbers are the same for all alphas, so that the curve has no noise of its own from one to the next.
    """
    sizes = np.unique(np.quantile(step_tokens, (np.arange(SIZES) + 0.5) / SIZES, method="nearest").astype(np.int64))
    weight = np.bincount(np.abs(step_tokens[:, None] - sizes).argmin(axis=1), minlength=len(sizes))
    # The recipe has no value at exactly 1.
    alphas = np.arange(0.0, _END + _STEP / 2, _STEP) + 1e-6
    points = np.array([_point(float(alpha), sizes, weight, experts, top_k, seed) for alpha in alphas])
    # Small steps are alike for all low alphas: the lowest stands for them.
    higher = np.maximum.accumulate(points[:, 0])
    kept = np.concatenate([[True], np.diff(higher) > _LEAST])
    peaks = np.maximum.accumulate(points[kept, 1])
    return Curve(alpha=frozen(np.round(alphas[kept], 3)), gini=frozen(higher[kept]), busiest=frozen(peaks))


def gini(counts: IntArray) -> FloatArray:
    """float64[…] Gini coefficient over the last axis of counts [..., E], 0 = even; NaN without any count."""
    ascending = np.sort(counts, axis=-1).astype(np.float64)
    experts, total = counts.shape[-1], ascending.sum(axis=-1)
    weight = 2 * np.arange(1, experts + 1) - experts - 1
    unknown = np.full(total.shape, np.nan)
    found: FloatArray = np.divide(ascending @ weight, total * experts, out=unknown, where=total > 0)
    return found


def busiest(counts: IntArray) -> FloatArray:
    """float64[…] largest over mean of counts [..., E]; NaN without any count."""
    mean = counts.mean(axis=-1)
    unknown = np.full(mean.shape, np.nan)
    found: FloatArray = np.divide(counts.max(axis=-1), mean, out=unknown, where=mean > 0)
    return found


def _point(alpha: float, sizes: IntArray, weight: IntArray, experts: int, top_k: int, seed: int) -> FloatArray:
    """float64[2] Gini and busiest of draws with one alpha, over all sizes."""
    found = np.zeros(2)
    for tokens, times in zip(sizes.tolist(), weight.tolist(), strict=True):
        counts = drawn(tokens, experts, top_k, alpha, -(-DRAWN_EXPERTS // experts), stream(seed, f"{tokens} tokens"))
        found += times * np.array([gini(counts).mean(), busiest(counts).mean()])
    mean: FloatArray = found / weight.sum()
    return mean


def drawn(tokens: int, experts: int, top_k: int, alpha: float, draws: int, rng: np.random.Generator) -> IntArray:
    """int64[D, E] tokens of each expert in draws of the recipe, experts in no order."""
    recipe = Recipe(tokens=tokens, experts=experts, top_k=top_k, ranks=1, alpha=alpha, slots=experts)
    return completed(power_law(rng, recipe, draws), recipe)
