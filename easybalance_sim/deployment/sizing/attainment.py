"""Whether a deployment keeps its SLO at a rate, and what it fails by where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from easybalance_sim.deployment.measure import Measured, measure
from easybalance_sim.deployment.prepare import Prepared, workload_at
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.simulate.serving.results import tpot_s, ttft_s

TTFT, TPOT, REFUSED = "time to first token", "time per output token", "refused requests"
FEW_REQUESTS = 200
"""With fewer of them, one more or less moves the share that keeps the SLO by half a percent."""


@dataclass(frozen=True, kw_only=True)
class Attainment:
    """Means over seeds. rate_per_s: asked for · inside: share of the scored requests that kept the SLO · late_first,
    slow, refused: shares whose first token came late, whose further ones came slowly, that were turned away (a request
    may count twice) · requests: scored, fewest of the seeds · goodput_per_s, output_tokens_per_s, kv_in_use: of the
    last pool, share of its cache · ttft_p99_s, tpot_p99_s."""

    rate_per_s: float
    inside: float
    late_first: float
    slow: float
    refused: float
    requests: int
    goodput_per_s: float
    output_tokens_per_s: float
    kv_in_use: float
    ttft_p99_s: float
    tpot_p99_s: float

    @property
    def worst(self) -> str:
        """What most requests fail by."""
        shares = {TTFT: self.late_first, TPOT: self.slow, REFUSED: self.refused}
        return max(shares, key=lambda name: shares[name])


def attained(prepared: Prepared, key: str, rate_per_s: float, *, seeds: Sequence[int], overlap: str = "") -> Attainment:
    """Serve the scenario at a rate once per seed, which is that of arrivals, routing and chance. key: one of
    `prepare.KEYS` · overlap: "" = the scenario's. Raises `UsageError` for a rate that is not > 0."""
    return joined(rate_per_s, [_of(prepared, key, rate_per_s, seed, overlap) for seed in seeds])


def _of(prepared: Prepared, key: str, rate_per_s: float, seed: int, overlap: str) -> Attainment:
    load = workload_at(seeded(prepared.scenario, seed), rate_per_s)
    return attainment(prepared.scenario, rate_per_s, measure(prepared, key, workload=load, seed=seed, overlap=overlap))


def seeded(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with another seed."""
    return msgspec.structs.replace(scenario, run=msgspec.structs.replace(scenario.run, seed=seed))


def attainment(scenario: Scenario, rate_per_s: float, run: Measured) -> Attainment:
    """What one run attained."""
    found, service, slo = run.results, run.service, scenario.slo
    scored = (service.workload.arrival_s >= found.from_s) & (service.workload.arrival_s < found.to_s)
    count = max(1, int(scored.sum()))
    # A request that is not there yet at the end is as late as it can be.
    late = scored & ~service.refused & ~(ttft_s(service) <= slo.ttft_s)
    slow = scored & ~service.refused & ~late & ~(tpot_s(service) <= slo.tpot_s)
    return Attainment(
        rate_per_s=rate_per_s,
        inside=found.inside_frac,
        late_first=float(late.sum() / count),
        slow=float(slow.sum() / count),
        refused=found.refused / count,
        requests=found.requests,
        goodput_per_s=found.goodput_per_s,
        output_tokens_per_s=found.output_tokens_per_s,
        kv_in_use=found.pools[-1].kv_peak_frac,
        ttft_p99_s=found.ttft.p99,
        tpot_p99_s=found.tpot.p99,
    )


def joined(rate_per_s: float, found: Sequence[Attainment]) -> Attainment:
    """Means over runs; the fewest requests of them."""
    names = [name for name in Attainment.__dataclass_fields__ if name not in ("rate_per_s", "requests")]
    means = {name: float(np.mean([getattr(one, name) for one in found])) for name in names}
    return Attainment(rate_per_s=rate_per_s, requests=min(one.requests for one in found), **means)
