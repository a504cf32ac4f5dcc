"""`Workload`: the requests that arrive, with their lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, Int32Array, frozen
from easybalance_sim.errors import UsageError


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """N requests in order of arrival.

    arrival_s: float64[N] ≥ 0, never falling · prompt_tokens, output_tokens: int32[N] ≥ 1 · cached_tokens: int32[N]
    tokens of the prompt whose KV cache is there already, < prompt · tenant: int32[N] index into `tenants`, what a
    request is about: it draws its routing from requests of that workload where the routing trace has it · source: one
    line, where the requests come from.
    Raises `UsageError` naming the first request that cannot be.
    """

    arrival_s: FloatArray
    prompt_tokens: Int32Array
    output_tokens: Int32Array
    cached_tokens: Int32Array
    tenant: Int32Array
    tenants: tuple[str, ...]
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrival_s", frozen(self.arrival_s, np.float64))
        for name in ("prompt_tokens", "output_tokens", "cached_tokens", "tenant"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.int32))
        problems = {
            "there are no requests": np.full(1, self.requests == 0),
            "arrives before the one in front of it, or before 0": ~(np.diff(self.arrival_s, prepend=0.0) >= 0),
            "has no prompt or no output": (self.prompt_tokens < 1) | (self.output_tokens < 1),
            "has more cached tokens than its prompt before the last": (self.cached_tokens < 0)
            | (self.cached_tokens >= self.prompt_tokens),
            "is of no known tenant": (self.tenant < 0) | (self.tenant >= len(self.tenants)),
        }
        for problem, wrong in problems.items():
            if wrong.any():
                raise UsageError(problem, where=f"request {int(np.argmax(wrong))} of {self.source or 'the workload'}")

    @property
    def requests(self) -> int:
        """N."""
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """Seconds from 0 to the last arrival."""
        return float(self.arrival_s[-1])

    @property
    def rate_per_s(self) -> float:
        """Requests per second, N over the span; N where all arrive at once."""
        return self.requests / self.span_s if self.span_s > 0 else float(self.requests)

    def take(self, kept: BoolArray) -> Workload:
        """The requests of a mask, at the same times."""
        names = ("arrival_s", "prompt_tokens", "output_tokens", "cached_tokens", "tenant")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    def at_rate(self, rate_per_s: float) -> Workload:
        """The same requests in the same order, time stretched so that `rate_per_s` arrive. Raises `UsageError` for a
        rate that is not > 0."""
        if not rate_per_s > 0:
            raise UsageError(f"{rate_per_s:g} requests per second", where="rate", fix="give more than 0")
        return replace(self, arrival_s=self.arrival_s * (self.rate_per_s / rate_per_s))

    def earlier(self, by_s: float) -> Workload:
        """The same requests, all of them `by_s` seconds earlier. Raises `UsageError` when one would come before 0."""
        return replace(self, arrival_s=self.arrival_s - by_s)
