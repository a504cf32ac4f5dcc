"""Poisson arrivals at a steady rate, and at a multiple of it in windows."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.serving.arrivals.streams import Positive, Seconds, Stream, poisson_times


class Pattern(Stream, frozen=True, kw_only=True, tag="burst"):
    """rate_per_s: outside of bursts · times_rate: the rate in a burst over it · burst_from_s, burst_s: when, counted
    from `from_s`, and how long · every_s: bursts come again after so long, 0 = one only."""

    times_rate: Annotated[float, msgspec.Meta(ge=1, le=1e4)]
    burst_from_s: Seconds
    burst_s: Positive
    every_s: Seconds = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 < self.every_s < self.burst_s:
            raise ValueError(f"every_s = {self.every_s:g} is shorter than burst_s = {self.burst_s:g}")

    @property
    def peak_per_s(self) -> float:
        """In a burst."""
        return self.rate_per_s * self.times_rate

    def times(self, span_s: float, rng: np.random.Generator) -> FloatArray:
        """float64[n] rising seconds in [0, span_s)."""
        times = poisson_times(self.peak_per_s, span_s, rng)
        since = times - self.burst_from_s
        inside = np.where(since >= 0, since % self.every_s if self.every_s else since, np.inf) < self.burst_s
        kept: FloatArray = times[inside | (rng.random(len(times)) < 1 / self.times_rate)]
        return kept
