"""`Case`: plan and baseline side by side on one stretch of stress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, stream
from easybalance_sim.replay.outcome import Outcome

RESAMPLES = 200
BLOCK_STEPS = 16
"""Steps that are drawn together."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One stretch. before: the baseline, after: the plan · extra: what else is known of either side, by name."""

    name: str
    before: Outcome
    after: Outcome
    seed: int
    extra: dict[str, dict[str, Any]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For the report; keys as documented."""
        return {
            "name": self.name,
            **self.about,
            "tokens": self.after.tokens,
            "steps": self.after.steps,
            "baseline": {**figures(self.before), **self.extra.get("baseline", {})},
            "plan": {**figures(self.after), **self.extra.get("plan", {})},
            "lower_bound_imbalance": round(float(np.nanmean(self.after.window_bound)), 6),
            "over_baseline": self._over_baseline(),
        }

    def _over_baseline(self) -> dict[str, float]:
        """P99 of the plan over that of the baseline, each with its standard error."""
        # Drawn steps of counts are independent, recorded neighbours have requests in common.
        block = 1 if self.after.expected else BLOCK_STEPS
        before, after = self.before, self.after
        found = {
            "step_p99": p99_ratio(before.step_seconds(), after.step_seconds(), block, self.seed),
            "imbalance_p99": p99_ratio(before.window_imbalance, after.window_imbalance, 1, self.seed),
        }
        ratios = {name: round(ratio, 6) for name, (ratio, _) in found.items()}
        return ratios | {f"{name}_noise": round(noise, 6) for name, (_, noise) in found.items()}


def figures(outcome: Outcome) -> dict[str, dict[str, float]]:
    """Imbalance and step time of one plan."""
    ratio = outcome.window_imbalance[np.isfinite(outcome.window_imbalance)]
    return {
        "rank_imbalance": {"mean": round(float(ratio.mean()), 6), "p99": round(float(np.quantile(ratio, 0.99)), 6)},
        "step_us": {"p99": round(float(np.quantile(outcome.step_seconds(), 0.99)) * 1e6, 6)},
    }


def p99_ratio(before: FloatArray, after: FloatArray, block: int, seed: int) -> tuple[float, float]:
    """(P99 of `after` over that of `before`, its standard error) of values float64[W, …], NaN = none.

    The error is that of a bootstrap over blocks of rows, both plans on the same blocks (Künsch 1989).
    """
    pair = np.stack([before, after])
    rows = pair.shape[1]
    blocks = -(-rows // block)
    first = stream(seed, "noise of a P99").integers(0, blocks, (RESAMPLES, blocks)) * block
    drawn = (first[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)
    resampled = [_ratio(pair[:, row[row < rows]]) for row in drawn]
    return _ratio(pair), float(np.std(resampled))


def _ratio(pair: FloatArray) -> float:
    before, after = (np.quantile(side[np.isfinite(side)], 0.99) for side in pair)
    return float(after / before) if before > 0 else 1.0
