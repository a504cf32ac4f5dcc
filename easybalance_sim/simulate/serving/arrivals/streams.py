"""`Stream`: requests of one tenant that come by one pattern."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.serving.arrivals.lengths import Lengths, Tokens

Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class Stream(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="pattern"):
    """name: the tenant; it draws its routing from the workload of that name where the routing trace has it · from_s,
    until_s: when it is there, None = until the end; its pattern begins when it comes · rate_per_s: requests
    per second; what of, the pattern says · prompt_tokens, output_tokens: a
    number, or a distribution."""

    name: str = "all"
    from_s: Seconds = 0.0
    until_s: Positive | None = None
    rate_per_s: Rate
    prompt_tokens: Tokens | Lengths
    output_tokens: Tokens | Lengths

    def __post_init__(self) -> None:
        if self.until_s is not None and self.until_s <= self.from_s:
            raise ValueError(f"until_s = {self.until_s:g} is not after from_s = {self.from_s:g}")

    @property
    def peak_per_s(self) -> float:
        """The highest rate of its pattern."""
        return self.rate_per_s

    def times(self, span_s: float, rng: np.random.Generator) -> FloatArray:
        """float64[n] rising seconds in [0, span_s) at which requests come."""
        raise NotImplementedError(f"the pattern {type(self).__name__} says no times")


def poisson_times(rate_per_s: float, span_s: float, rng: np.random.Generator) -> FloatArray:
    """float64[n] arrivals of a Poisson process in [0, span_s): a Poisson number of them, anywhere."""
    return np.sort(rng.random(rng.poisson(rate_per_s * span_s)) * span_s)
