"""A cache of every size at once, and one size with its link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen, sealed
from easybalance_sim.kernels.reference_expert_cache import AHEAD, HIT, HIT_TOKENS, LATE, MISS, USED_AHEAD
from easybalance_sim.simulate.offloading.policies import Priorities
from easybalance_sim.simulate.offloading.prefetch import Wanted
from easybalance_sim.simulate.offloading.uses import Uses

SCOPES = ("layer", "model")
"""A cache for every layer, or one for all layers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cached:
    """One policy on judged steps.

    depth: int32[A] smallest cache that holds what is asked for, 0 = none · group: int32[L] cache of each layer ·
    stack: int32[G, M] when the judged steps begin, a cache of C holds the first C of its `length` int64[G] · value:
    float64[L·E] then.
    """

    uses: Uses
    priority: FloatArray
    group: Int32Array
    depth: Int32Array
    stack: Int32Array
    length: IntArray
    value: FloatArray

    @property
    def caches(self) -> int:
        """G."""
        return len(self.stack)

    def capacity(self, experts: int) -> IntArray:
        """int64[G] places of each cache when there are so many in all: the first caches get one more."""
        each, more = divmod(experts, self.caches)
        return frozen(each + (np.arange(self.caches) < more), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What became of every position: int64[P] experts that were there (`hits`), on their way (`late`), loaded on demand
    (`misses`), loaded ahead before the layer began (`ahead`), and hits or late ones of these (`used_ahead`); tokens of
    the hits (`hit_tokens`) · stall: float64[P] seconds that the layer waits."""

    hits: IntArray
    late: IntArray
    misses: IntArray
    ahead: IntArray
    used_ahead: IntArray
    hit_tokens: IntArray
    stall: FloatArray


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """latency_s: until a transfer begins to arrive · item_s: of one expert."""

    latency_s: float
    item_s: float


def cached(past: Uses, judged: Uses, given: Priorities, scope: str) -> Cached:
    """Run the policy whose values are given, for all sizes."""
    caches = judged.layers if scope == "layer" else 1
    group = frozen(np.arange(judged.layers) % caches, np.int32)
    stack = np.full((caches, judged.items // caches), -1, np.int32)
    length, value = np.zeros(caches, np.int64), np.full(judged.items, -np.inf)
    module = kernels.load("auto")
    if given.first is not None:
        value[:] = given.first
        _fill(stack, length, value)
    elif given.past is not None:
        module.stack_depths(past.start, past.item, given.past, group, stack, length, value)
    begin = [frozen(part.copy()) for part in (stack, length, value)]
    depth = module.stack_depths(judged.start, judged.item, given.judged, group, stack, length, value)
    return Cached(
        uses=judged, priority=given.judged, group=group, depth=sealed(depth), stack=begin[0], length=begin[1],
        value=begin[2],
    )  # fmt: skip


def _fill(stack: Int32Array, length: IntArray, value: FloatArray) -> None:
    """Every cache with the items of its layers that have a value, best first."""
    each = stack.shape[1]
    for cache in range(len(stack)):
        mine = np.arange(cache * each, (cache + 1) * each)
        mine = mine[value[mine] > -np.inf]
        stack[cache, : len(mine)] = mine[np.argsort(-value[mine], kind="stable")]
        length[cache] = len(mine)


def on_demand(policy: Cached, experts: int, transfer: Transfer) -> Run:
    """The run with a cache of so many experts, nothing fetched ahead: a layer waits for its misses alone."""
    uses = policy.uses
    own = policy.capacity(experts)[policy.group]
    room = np.repeat(np.tile(own, uses.steps), np.diff(uses.start))
    there = (policy.depth > 0) & (policy.depth <= room)
    hits = np.add.reduceat(there, uses.start[:-1], dtype=np.int64)
    misses = np.diff(uses.start) - hits
    none = np.zeros_like(hits)
    return Run(
        hits=hits, late=none, misses=misses, ahead=none, used_ahead=none,
        hit_tokens=np.add.reduceat(np.where(there, uses.tokens, 0), uses.start[:-1], dtype=np.int64),
        stall=np.where(misses > 0, transfer.latency_s + misses * transfer.item_s, 0.0),
    )  # fmt: skip


def fetching_ahead(
    policy: Cached, experts: int, transfer: Transfer, compute: FloatArray, wanted: Wanted, ahead: int
) -> Run:
    """The run with a cache of so many experts and `wanted` fetched ahead. compute: float64[P] seconds from a layer's
    experts being there to the next layer's being asked for.

    Raises `RuntimeError` when uses or loads do not add up.
    """
    uses = policy.uses
    counts, stall = kernels.load("auto").run_cache(
        uses.start, uses.item, uses.tokens, policy.priority, policy.group, policy.capacity(experts), policy.stack,
        policy.length, policy.value, compute, frozen([transfer.latency_s, transfer.item_s]), wanted.start,
        wanted.item, ahead,
    )  # fmt: skip
    columns = [counts[:, column].astype(np.int64) for column in (HIT, LATE, MISS, AHEAD, USED_AHEAD, HIT_TOKENS)]
    run = Run(
        **dict(zip(("hits", "late", "misses", "ahead", "used_ahead", "hit_tokens"), columns, strict=True)), stall=stall
    )
    if (run.hits + run.late + run.misses != np.diff(uses.start)).any() or run.used_ahead.sum() > run.ahead.sum():
        raise RuntimeError("uses of a cache do not add up")
    return run
