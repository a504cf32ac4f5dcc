"""One size of a cache in numbers, and the smallest size that will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.simulate.offloading.cache import Cached, Run, Transfer
from easybalance_sim.simulate.offloading.uses import Uses

STAGED_EXPERTS = 2
"""Places beside the cache for experts that are streamed past it: one arrives while another computes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """What all sizes of one run share. compute: float64[P] seconds of a layer with all experts there, up to the next ·
    tokens: of the judged steps · resident_bytes: of an expert on the GPU · link_bytes: of one on the link."""

    uses: Uses
    compute: FloatArray
    tokens: int
    transfer: Transfer
    resident_bytes: int
    link_bytes: int

    @property
    def step_s(self) -> FloatArray:
        """float64[S] seconds of each step with all experts there."""
        return self.by_step(self.compute)

    def by_step(self, values: AnyArray) -> AnyArray:
        """[S] sums over layers of [P]."""
        return np.asarray(values.reshape(-1, self.uses.layers).sum(axis=1))

    def gpu_bytes(self, experts: int) -> int:
        """Memory for a cache of so many experts, with the places for what streams past unless all are there."""
        staged = STAGED_EXPERTS if experts < self.uses.items else 0
        return (experts + staged) * self.resident_bytes

    def experts_in(self, gpu_bytes: float) -> int:
        """Largest cache that so much memory holds, 0 = none."""
        most = int(gpu_bytes // self.resident_bytes)
        return self.uses.items if most >= self.uses.items else max(0, most - STAGED_EXPERTS)


def point(ground: Ground, experts: int, run: Run) -> dict[str, Any]:
    """The documented numbers of a cache of so many experts."""
    uses = len(ground.uses.item)
    added = ground.by_step(run.stall)
    step = ground.step_s + added
    loads = int(run.misses.sum() + run.ahead.sum())
    return {
        "share": experts / ground.uses.items,
        "experts": experts,
        "gpu_bytes": ground.gpu_bytes(experts),
        "hit_rate": int(run.hits.sum()) / uses,
        "late_rate": int(run.late.sum()) / uses,
        "token_hit_rate": int(run.hit_tokens.sum()) / int(ground.uses.tokens.sum(dtype=np.int64)),
        "loads": loads,
        "loads_ahead": int(run.ahead.sum()),
        "loads_ahead_used": int(run.used_ahead.sum()),
        "link_bytes": loads * ground.link_bytes,
        "link_bytes_per_token": loads * ground.link_bytes / ground.tokens,
        "added_us": _mean_and_tail(added),
        "step_us": _mean_and_tail(step),
        "slowdown": float(step.sum() / ground.step_s.sum()),
        "throughput_ratio": float(ground.step_s.sum() / step.sum()),
    }


def by_layer(ground: Ground, layer_ids: tuple[int, ...], run: Run) -> list[dict[str, Any]]:
    """Hits, loads and waiting of each layer."""
    layers = ground.uses.layers
    asked = _layer_sums(np.diff(ground.uses.start), layers)
    hits, loads = _layer_sums(run.hits, layers), _layer_sums(run.misses + run.ahead, layers)
    added = _layer_sums(run.stall, layers) / ground.uses.steps
    return [
        {
            "layer": layer,
            "experts_per_step": float(asked[row] / ground.uses.steps),
            "hit_rate": float(hits[row] / asked[row]),
            "loads_per_step": float(loads[row] / ground.uses.steps),
            "added_us": float(added[row] * 1e6),
        }
        for row, layer in enumerate(layer_ids)
    ]


def _layer_sums(values: AnyArray, layers: int) -> AnyArray:
    return np.asarray(values.reshape(-1, layers).sum(axis=0))


def _mean_and_tail(seconds: FloatArray) -> dict[str, float]:
    return {"mean": float(seconds.mean() * 1e6), "p99": float(np.percentile(seconds, 99) * 1e6)}


def sizes(policy: Cached) -> IntArray:
    """int64[n] every size at which all caches have as many places, all of them last."""
    return np.arange(1, policy.stack.shape[1] + 1) * policy.caches


def hit_rates(policy: Cached) -> FloatArray:
    """float64[n] hit rate by experts at each of `sizes`."""
    return np.cumsum(_at_depth(policy.depth, policy)) / len(policy.depth)


def slowdowns(policy: Cached, ground: Ground) -> FloatArray:
    """float64[n] mean step time over that with all experts there, at each of `sizes`, nothing fetched ahead."""
    uses = policy.uses
    # An item that no cache holds is deeper than the deepest.
    depth = np.where(policy.depth > 0, policy.depth, policy.stack.shape[1] + 1)
    misses = len(depth) - np.cumsum(_at_depth(policy.depth, policy))
    deepest = np.maximum.reduceat(depth, uses.start[:-1])
    waiting = uses.positions - np.cumsum(_at_depth(deepest, policy))
    added = waiting * ground.transfer.latency_s + misses * ground.transfer.item_s
    return 1 + np.asarray(added / ground.compute.sum())


def good_from(good: AnyArray) -> int | None:
    """Index of the first of rising sizes from which on all are good, bool[n]; None when the last is not."""
    bad = np.flatnonzero(~np.asarray(good, np.bool_))
    first = int(bad[-1]) + 1 if len(bad) else 0
    return first if first < len(good) else None


def _at_depth(depth: AnyArray, policy: Cached) -> IntArray:
    """int64[n] entries of each depth 1..n."""
    n = policy.stack.shape[1]
    return np.bincount(depth, minlength=n + 2)[1 : n + 1]
