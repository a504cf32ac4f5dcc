"""Several streams as one load: each tenant with its own pattern and lengths, some of them only for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from easybalance_sim.arrays import stream as numbers
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.serving.arrivals.lengths import OUTPUT, PROMPT, draw
from easybalance_sim.simulate.serving.arrivals.streams import Stream
from easybalance_sim.simulate.serving.workload import Workload

MOST_REQUESTS = 20_000_000


def generate(streams: Sequence[Stream], duration_s: float, seed: int = 0) -> Workload:
    """The requests of all streams in [0, duration_s), in order of arrival; the same for the same streams and seed, and
    no stream's requests depend on the other streams.

    Raises `UsageError` when no request comes, or more than a run can hold.
    """
    parts: dict[str, list[Workload]] = {}
    for place, stream in enumerate(streams):
        drawn = _drawn(stream, duration_s, seed, place)
        if drawn is not None:
            parts.setdefault(stream.name, []).append(drawn)
    if not parts:
        raise UsageError(f"no request in {duration_s:g} s", where="arrivals", fix="give a higher rate or a longer run")
    said = ", ".join(dict.fromkeys(_said(stream) for stream in streams))
    return replace(merged({name: _sorted(found) for name, found in parts.items()}), source=f"generated: {said}")


def merged(workloads: Mapping[str, Workload]) -> Workload:
    """The requests of several loads in order of arrival; those of each are of the tenant that it is named by."""
    named = [replace(load, tenant=load.tenant * 0, tenants=(name,)) for name, load in workloads.items()]
    return _sorted(named)


def _sorted(loads: Sequence[Workload]) -> Workload:
    """Tenants keep their names; equal names are one tenant."""
    tenants = tuple(dict.fromkeys(name for load in loads for name in load.tenants))
    of_load = [np.array([tenants.index(name) for name in load.tenants])[load.tenant] for load in loads]
    arrival = np.concatenate([load.arrival_s for load in loads])
    order = np.argsort(arrival, kind="stable")
    lengths = {
        name: np.concatenate([getattr(load, name) for load in loads])[order]
        for name in ("prompt_tokens", "output_tokens", "cached_tokens")
    }
    source = "; ".join(dict.fromkeys(load.source for load in loads))
    tenant = np.concatenate(of_load)[order]
    return Workload(arrival_s=arrival[order], tenant=tenant, tenants=tenants, source=source, **lengths)


def _drawn(stream: Stream, duration_s: float, seed: int, place: int) -> Workload | None:
    span = min(duration_s, duration_s if stream.until_s is None else stream.until_s) - stream.from_s
    if span <= 0:
        return None
    if stream.peak_per_s * span > MOST_REQUESTS:
        raise UsageError(
            f"{stream.peak_per_s * span:.3g} requests",
            where=f"arrivals: {stream.name}",
            fix="give a lower rate or a shorter run",
        )
    rng = numbers(seed, f"arrivals {place}")
    times = stream.times(span, rng)
    if not len(times):
        return None
    return Workload(
        arrival_s=times + stream.from_s,
        prompt_tokens=draw(stream.prompt_tokens, PROMPT, len(times), rng),
        output_tokens=draw(stream.output_tokens, OUTPUT, len(times), rng),
        cached_tokens=np.zeros(len(times), np.int32),
        tenant=np.zeros(len(times), np.int32),
        tenants=(stream.name,),
    )


def _said(stream: Stream) -> str:
    """A stream in a few words."""
    pattern = type(stream).__struct_config__.tag
    since = f" from {stream.from_s:g} s" if stream.from_s else ""
    return f"{stream.name} {pattern} {stream.rate_per_s:g}/s{since}"
