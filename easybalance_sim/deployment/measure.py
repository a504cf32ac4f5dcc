"""`measure`: a prepared scenario served once, without making plans or step models again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from easybalance_sim.deployment.fields import SERVED_OVERLAPS
from easybalance_sim.deployment.prepare import KEYS, Prepared, workload_at
from easybalance_sim.deployment.scoring import scored_span
from easybalance_sim.deployment.stations import HIDDEN, Station
from easybalance_sim.planning.session import require_choice
from easybalance_sim.simulate.serving.pools import Pool, RunSettings, Service, Transfer, colocated, disaggregated
from easybalance_sim.simulate.serving.profiles import Profiles
from easybalance_sim.simulate.serving.results import Results, Slo, summarised
from easybalance_sim.simulate.serving.routed import drawn
from easybalance_sim.simulate.serving.workload import Workload

BUCKETS = 120
"""Of the timeline, where the scenario does not say how long they are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """key: what was served, of `prepare.KEYS` · stations: with what, profiles: rows of the requests, one per pool ·
    service: what they got · results: of those that came between the warm-up and the end of the run, see `scoring`."""

    key: str
    stations: tuple[Station, ...]
    profiles: tuple[Profiles, ...]
    service: Service
    results: Results


def measure(
    prepared: Prepared,
    key: str,
    *,
    rate_per_s: float | None = None,
    seed: int | None = None,
    overlap: str = "",
    workload: Workload | None = None,
    samples: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Measured:
    """Serve the requests once; plans and step models are those that were prepared.

    key: one of `prepare.KEYS` · rate_per_s: of requests, None = the scenario's · seed: of routing and chance, None =
    the scenario's · overlap: "none" or "full", "" = the scenario's · workload: these requests instead · samples: steps
    to take apart · advance: told of requests that leave a pool.
    Raises `UsageError` for a key or overlap that there is not and a rate that is not > 0.
    """
    scenario, run = prepared.scenario, prepared.scenario.run
    require_choice("key", key, KEYS)
    require_choice("overlap", overlap or run.overlap, SERVED_OVERLAPS)
    load = prepared.workload if workload is None else workload
    if rate_per_s is not None:
        load = workload_at(scenario, rate_per_s)
    settings = RunSettings(
        seed=run.seed if seed is None else seed,
        bucket_s=run.bucket_s or run.duration_s / BUCKETS,
        samples=samples,
        progress=advance,
    )
    stations = prepared.stations(key)
    rows = drawn(prepared.ground.routed, load, settings.seed)
    profiles = tuple(one.profiles(rows, load) for one in stations)
    service = _served(prepared, stations, load, profiles, HIDDEN[overlap or run.overlap], settings)
    slo = Slo(ttft_s=scenario.slo.ttft_s, tpot_s=scenario.slo.tpot_s)
    from_s, to_s = scored_span(scenario, service)
    return Measured(
        key=key,
        stations=stations,
        profiles=profiles,
        service=service,
        results=summarised(service, slo, from_s=from_s, to_s=to_s),
    )


def _served(
    prepared: Prepared,
    stations: tuple[Station, ...],
    load: Workload,
    profiles: tuple[Profiles, ...],
    hidden: float,
    settings: RunSettings,
) -> Service:
    pools = [Pool(limits=one.limits, model=replace(one.model, hidden=hidden)) for one in stations]
    if len(pools) == 1:
        return colocated(load, profiles[0], pools[0], settings)
    said, memory = prepared.scenario.transfer, stations[0].memory
    token_bytes = float(prepared.ground.shape.kv_bytes_per_token) if memory is None else memory.token_bytes
    transfer = Transfer(bytes_per_token=token_bytes, bytes_per_s=said.bytes_per_s, latency_s=said.latency_s)
    first, second = pools
    return disaggregated(load, profiles[0], first, second, transfer, settings, decode_profile=profiles[1])
