"""Evenly spaced arrivals, the first at 0: what a load generator with a fixed rate sends."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.serving.arrivals.streams import Stream


class Pattern(Stream, frozen=True, kw_only=True, tag="even"):
    """rate_per_s: exactly."""

    def times(self, span_s: float, rng: np.random.Generator) -> FloatArray:
        """float64[n] rising seconds in [0, span_s); nothing is drawn."""
        spaced = np.arange(int(np.ceil(self.rate_per_s * span_s))) / self.rate_per_s
        return spaced[spaced < span_s]
