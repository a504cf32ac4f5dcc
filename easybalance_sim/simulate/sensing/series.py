"""Loads that compete with each other, over steps, and what of their past a sensor sees at each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.steps.balance import relative


@dataclass(frozen=True, eq=False)
class Series:
    """loads: float64[S, U] of U units (the ranks, or the experts, of one layer; or ranks over all layers) in S steps.

    What is seen at step t are steps up to t, itself included. Before the first step there was no load.
    """

    loads: FloatArray

    def recent(self, steps: int, ago: int = 0) -> FloatArray:
        """float64[S, U] load of the `steps` steps that ended `ago` steps before each step."""
        end = np.maximum(np.arange(1, len(self.loads) + 1) - ago, 0)
        sums: FloatArray = self._total[end] - self._total[np.maximum(end - steps, 0)]
        return sums

    def ahead(self, steps: int) -> FloatArray:
        """float64[S, U] load of the `steps` steps after each step; fewer at the end."""
        first = np.arange(1, len(self.loads) + 1)
        sums: FloatArray = self._total[np.minimum(first + steps, len(self.loads))] - self._total[first]
        return sums

    def averaged(self, tau_steps: float) -> FloatArray:
        """float64[S, U] exponentially weighted load: a step counts e times less than one `tau_steps` later."""
        kept = float(np.exp(-1 / tau_steps))
        out = np.empty_like(self.loads)
        level = np.zeros(self.loads.shape[1])
        for place, row in enumerate(self.loads * (1 - kept)):
            level = kept * level + row
            out[place] = level
        return out

    @cached_property
    def _total(self) -> FloatArray:
        start = np.zeros((1, self.loads.shape[1]))
        total: FloatArray = np.concatenate([start, np.cumsum(self.loads, axis=0)])
        return total


def share(load: FloatArray) -> FloatArray:
    """load/mean along the last axis, 1 where there is none."""
    parts: FloatArray = relative(load) + 1.0
    return parts
