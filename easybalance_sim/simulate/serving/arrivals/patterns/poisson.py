"""Poisson arrivals: independent of each other, at a steady rate."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.serving.arrivals.streams import Stream, poisson_times


class Pattern(Stream, frozen=True, kw_only=True, tag="poisson"):
    """rate_per_s: on average."""

    def times(self, span_s: float, rng: np.random.Generator) -> FloatArray:
        """float64[n] rising seconds in [0, span_s)."""
        return poisson_times(self.rate_per_s, span_s, rng)
