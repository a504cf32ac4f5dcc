"""Whether a deployment keeps its SLO at a rate, and what it fails by where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from easybalance_sim.deployment.measure import measure
from easybalance_sim.deployment.prepare import Prepared, workload_at
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.scoring import scored_span
from easybalance_sim.deployment.sizing.growth import growth, rise
from easybalance_sim.simulate.serving.pools import Service
from easybalance_sim.simulate.serving.results import Slo, summarised, tpot_s, ttft_s

TTFT, TPOT, REFUSED = "time to first token", "time per output token", "refused requests"
GROWS = "queue grows"
MOST_GROWTH = 0.02
"""Seconds of wait per second of arrivals, that is, the overload, from which a rate is not held: as close as a rate is
looked for."""
FEW_REQUESTS = 200
"""With fewer of them, one more or less moves the share that keeps the SLO by half a percent."""


@dataclass(frozen=True, kw_only=True)
class Attainment:
    """Means over seeds. rate_per_s: asked for · inside: share of the scored requests that kept the SLO, inside_least
    and inside_most of the seeds · growth: see `sizing.growth` · late_first, slow, refused: shares whose first token
    came late, whose further ones came slowly, that were turned away · requests: scored, fewest of the seeds ·
    rise: of the time per token, see `sizing.growth` · goodput_per_s, output_tokens_per_s · kv_in_use: share of the last
    pool's cache · ttft_p99_s, tpot_p99_s."""

    rate_per_s: float
    inside: float
    inside_least: float
    inside_most: float
    growth: float
    rise: float
    late_first: float
    slow: float
    refused: float
    requests: int
    goodput_per_s: float
    output_tokens_per_s: float
    kv_in_use: float
    ttft_p99_s: float
    tpot_p99_s: float

    def holds(self, share: float) -> bool:
        """Whether that share of the requests keeps the SLO, and would go on keeping it."""
        return self.inside >= share and self.growth < MOST_GROWTH

    def fails_by(self, share: float) -> str:
        """What most requests fail by, or the queue where the SLO is still kept; empty when the rate holds."""
        if self.holds(share):
            return ""
        shares = {TTFT: self.late_first, TPOT: self.slow, REFUSED: self.refused}
        return max(shares, key=lambda name: shares[name]) if self.inside < share else GROWS


def attained(prepared: Prepared, key: str, rate_per_s: float, *, seeds: Sequence[int], overlap: str = "") -> Attainment:
    """Serve the scenario at a rate once per seed, which is that of arrivals, routing and chance. key: one of
    `prepare.KEYS` · overlap: "" = the scenario's. Raises `UsageError` for a rate that is not > 0."""
    return joined([_of(prepared, key, rate_per_s, seed, overlap) for seed in seeds])


def _of(prepared: Prepared, key: str, rate_per_s: float, seed: int, overlap: str) -> Attainment:
    """One run."""
    load = workload_at(prepared.scenario, rate_per_s, seed)
    run = measure(prepared, key, workload=load, seed=seed, overlap=overlap)
    return attainment(prepared.scenario, rate_per_s, run.service)


def attainment(scenario: Scenario, rate_per_s: float, service: Service) -> Attainment:
    """What one run attained, of the requests that are scored (see `deployment.scoring`)."""
    arrival, slo = service.workload.arrival_s, scenario.slo
    from_s, to_s = scored_span(scenario, service)
    scored = (arrival >= from_s) & (arrival < to_s)
    found = summarised(service, Slo(ttft_s=slo.ttft_s, tpot_s=slo.tpot_s), from_s=from_s, to_s=to_s)
    served = scored & ~service.refused
    # A request that never gets there is as late as it can be.
    late = served & ~(ttft_s(service) <= slo.ttft_s)
    slow = served & ~late & ~(tpot_s(service) <= slo.tpot_s)
    count = found.requests
    return Attainment(
        rate_per_s=rate_per_s,
        inside=found.inside_frac,
        inside_least=found.inside_frac,
        inside_most=found.inside_frac,
        growth=growth(service, served),
        rise=rise(service, served),
        late_first=float(late.sum() / count),
        slow=float(slow.sum() / count),
        refused=found.refused / count,
        requests=count,
        goodput_per_s=found.goodput_per_s,
        output_tokens_per_s=found.output_tokens_per_s,
        kv_in_use=found.pools[-1].kv_peak_frac,
        ttft_p99_s=found.ttft.p99,
        tpot_p99_s=found.tpot.p99,
    )


def joined(found: Sequence[Attainment]) -> Attainment:
    """Runs of one rate as one: means, the fewest requests, the least and the most that were inside."""
    means = {name: float(np.mean([getattr(one, name) for one in found])) for name in _MEANS}
    return Attainment(
        requests=min(one.requests for one in found),
        inside_least=min(one.inside_least for one in found),
        inside_most=max(one.inside_most for one in found),
        **means,
    )


_MEANS = [name for name in Attainment.__dataclass_fields__ if name not in ("requests", "inside_least", "inside_most")]
