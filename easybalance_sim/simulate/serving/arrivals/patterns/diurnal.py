"""Day and night: Poisson arrivals whose rate follows a sine; a day may be as short as the run needs it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.serving.arrivals.streams import Positive, Stream, poisson_times


class Pattern(Stream, frozen=True, kw_only=True, tag="diurnal"):
    """rate_per_s: mean of a day · swing: how far the rate goes above and below the mean, as a share of it, 0.6 = from
    40 % to 160 % · day_s: seconds of a day, 86,400 as in life · peak_at: share of a day after which the rate is
    highest."""

    swing: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.6
    day_s: Positive = 86400.0
    peak_at: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5

    @property
    def peak_per_s(self) -> float:
        """At the busiest hour."""
        return self.rate_per_s * (1 + self.swing)

    def times(self, span_s: float, rng: np.random.Generator) -> FloatArray:
        """float64[n] rising seconds in [0, span_s)."""
        times = poisson_times(self.peak_per_s, span_s, rng)
        rate = 1 + self.swing * np.cos(2 * np.pi * (times / self.day_s - self.peak_at))
        kept: FloatArray = times[rng.random(len(times)) * (1 + self.swing) < rate]
        return kept
