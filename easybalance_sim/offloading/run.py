"""What `ebsim offload` does, start to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.offloading.answer import answers
from easybalance_sim.offloading.prepare import Batch, Ready, batch_of, prepare
from easybalance_sim.offloading.request import OffloadRequest
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.offloading import policies, prefetch
from easybalance_sim.simulate.offloading.cache import Cached, Run, cached, fetching_ahead, on_demand
from easybalance_sim.simulate.offloading.points import by_layer, good_from, hit_rates, point, sizes, slowdowns

CLAIMED_HIT_RATE = 0.8
"""What articles say of LRU."""


def run_offload(request: OffloadRequest, tell: Listener) -> dict[str, Any]:
    """The documented JSON object. Raises `EbsimError` subclasses for bad input; writes nothing."""
    ready = prepare(request, tell)
    batches = request.batches or (None,)
    advance = tell.progress("running caches", Amount(len(batches) * len(request.pairs()), "caches"))
    report = _head(ready)
    report["batches"] = [_section(ready, at_once, tell, advance) for at_once in batches]
    return {"answers": answers(report), **report}


def _head(ready: Ready) -> dict[str, Any]:
    request, meta, resident, offloaded = ready.request, ready.session.meta, ready.resident, ready.offloaded
    everything = len(meta.layers) * meta.experts
    return {
        "trace": {
            "files": [str(path) for path in request.settings.traces],
            "layers": len(meta.layers),
            "experts": meta.experts,
            "top_k": meta.top_k,
        },
        "model": {
            "name": resident.name,
            "experts": everything,
            "resident_dtype": resident.dtype,
            "resident_bytes": resident.expert_bytes,
            "offload_dtype": offloaded.dtype,
            "offload_bytes": offloaded.expert_bytes,
            "all_bytes": everything * resident.expert_bytes,
        },
        "seconds": ready.cost.label,
        "host": {
            "name": ready.link.name,
            "bytes_per_s": ready.link.bytes_per_s,
            "latency_us": ready.link.latency_s * 1e6,
            "expert_us": offloaded.expert_bytes / ready.link.bytes_per_s * 1e6,
        },
        "scope": request.scope,
        "ahead": request.ahead,
        "between_us": request.between_us,
        "within": request.within,
        "gpu_gb": request.gpu_gb,
        "claimed_hit_rate": CLAIMED_HIT_RATE,
    }


def _section(ready: Ready, at_once: int | None, tell: Listener, advance: Callable[[int], None]) -> dict[str, Any]:
    """One batch size: every policy and predictor on it."""
    batch = batch_of(ready, at_once, tell)
    uses, ground = batch.history.judged, batch.ground
    step_us = ground.step_s * 1e6
    return {
        "batch": at_once,
        "past_steps": batch.history.past.steps,
        "judged_steps": uses.steps,
        "judged_tokens": ground.tokens,
        "tokens_per_step": ground.tokens / uses.steps,
        "experts_per_layer": len(uses.item) / uses.positions,
        "all_resident": {
            "layer_us": float(ground.compute.mean() * 1e6),
            "step_us": {"mean": float(step_us.mean()), "p99": float(np.percentile(step_us, 99))},
        },
        "curves": _curves(ready, batch, advance),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fetching:
    name: str
    wanted: prefetch.Wanted | None


def _curves(ready: Ready, batch: Batch, advance: Callable[[int], None]) -> list[dict[str, Any]]:
    """Every policy is run once, every predictor looks once."""
    request = ready.request
    view = prefetch.View(sides=batch.sides, past=batch.history.past, judged=batch.history.judged, ahead=request.ahead)
    fetching = {
        fetch: prefetch.wanted(fetch, view) for fetch in {fetch for _, fetch in request.pairs()} - {prefetch.NONE}
    }
    ran: dict[str, Cached] = {}
    found = []
    for policy, fetch in request.pairs():
        if policy not in ran:
            given = policies.priorities(policy, batch.history)
            ran[policy] = cached(batch.history.past, batch.history.judged, given, request.scope)
        found.append(_curve(ready, batch, ran[policy], (policy, fetch), fetching.get(fetch)))
        advance(1)
    return found


def _curve(
    ready: Ready, batch: Batch, policy: Cached, names: tuple[str, str], wanted: prefetch.Wanted | None
) -> dict[str, Any]:
    request, ground = ready.request, batch.ground

    def run(experts: int) -> Run:
        if wanted is None:
            return on_demand(policy, experts, ground.transfer)
        return fetching_ahead(policy, experts, ground.transfer, ground.compute, wanted, request.ahead)

    points = []
    for experts in batch.sizes:
        one = run(experts)
        points.append({**point(ground, experts, one), "layers": by_layer(ground, ready.session.meta.layers, one)})
    at = sizes(policy) if wanted is None else np.array(batch.sizes)
    hits = hit_rates(policy) if wanted is None else np.array([one["hit_rate"] for one in points])
    slower = slowdowns(policy, ground) if wanted is None else np.array([one["slowdown"] for one in points])
    return {
        "policy": names[0],
        "prefetch": names[1],
        "bound": policies.is_bound(names[0]) or prefetch.is_bound(names[1]),
        "points": points,
        "claimed_hit_rate_from": _reach(batch, hits >= CLAIMED_HIT_RATE, at, slower),
        "within_from": _reach(batch, slower <= 1 + request.within, at, slower),
    }


def _reach(batch: Batch, good: AnyArray, sizes: IntArray, slower: FloatArray) -> dict[str, Any] | None:
    """The smallest of the sizes from which on all are good, None when there is none."""
    first = good_from(good)
    if first is None:
        return None
    experts = int(sizes[first])
    return {
        "share": experts / batch.ground.uses.items,
        "experts": experts,
        "gpu_bytes": batch.ground.gpu_bytes(experts),
        "slowdown": float(slower[first]),
    }
