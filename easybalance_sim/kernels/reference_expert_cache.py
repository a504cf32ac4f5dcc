"""A GPU cache of experts as naive sets and lists: the specification of `numba_expert_cache`.

Position p = step · L + layer asks for a set of distinct items, item = layer · E + expert. What is there when the layer
begins is a hit, all else is loaded. Afterwards the cache keeps the best of what was there and what was asked for; an
item that is worse than all that are kept was streamed past. An item's value is the priority of its last use, the higher
the better, of equal values the lower item is better. As no value depends on the size of the cache, what a cache keeps
a larger one keeps, too (Mattson, Gecsei, Slutz, Traiger 1970): one pass gives the hits of all sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

HIT, LATE, MISS, AHEAD, USED_AHEAD, HIT_TOKENS = 0, 1, 2, 3, 4, 5
"""Columns of `run_cache`: experts that were there; on their way; not there; loaded ahead before the layer began; of the
hits and late ones those that were loaded ahead; tokens of the hits."""


def stack_depths(
    start: Int64s, item: Int32s, priority: Floats, group: Int32s, stack: Int32s, length: Int64s, value: Floats
) -> Int32s:
    """Smallest cache that holds each item when it is asked for.

    In: start int64[P+1] first use of each position · item int32[A] · priority float64[A] value that the use gives ·
    group int32[L] cache of each layer. Changed: stack int32[G, M] items of each cache, the first C are those of a cache
    of C · length int64[G] of the stacks · value float64[I].
    Returns depth int32[A]: 1 = a cache of one item holds it, 0 = no cache does.
    """
    depth = np.zeros(len(item), np.int32)
    for p in range(len(start) - 1):
        uses = range(int(start[p]), int(start[p + 1]))
        cache = int(group[p % len(group)])
        old = stack[cache, : length[cache]].tolist()
        asked = {int(item[a]): a for a in uses}
        for one, a in asked.items():
            depth[a] = old.index(one) + 1 if one in old else 0
            value[one] = priority[a]
        everything = len(set(old) | set(asked))
        kept: list[int] = []
        for size in range(1, everything + 1):
            there = set(old[:size]) | set(asked)
            (kept_more,) = set(_best(there, size, value)) - set(kept)
            kept.append(kept_more)
        stack[cache, :everything] = kept
        length[cache] = everything
    return depth


def _best(items: set[int], count: int, value: Floats) -> list[int]:
    return sorted(items, key=lambda one: (-value[one], one))[:count]


def run_cache(
    start: Int64s,
    item: Int32s,
    tokens: Int32s,
    priority: Floats,
    group: Int32s,
    capacity: Int64s,
    stack: Int32s,
    length: Int64s,
    value: Floats,
    compute: Floats,
    link: Floats,
    want_start: Int64s,
    want: Int32s,
    ahead: int,
) -> tuple[Int32s, Floats]:
    """One cache size with a link and with what is fetched ahead.

    In: start, item, priority, group as `stack_depths`; stack, length, value as it leaves them, the first `capacity` of
    each are there · tokens int32[A] of each use · capacity int64[G] · compute float64[P] seconds from a layer's experts
    being there to the next layer's being asked for · link float64[2] seconds until a transfer begins to
    arrive and of one item · want_start int64[P+1], want int32[...] items to fetch ahead for each position, most
    wanted first, asked for when the layer `ahead` positions before it begins.

    The link carries one item after another. What a layer lacks goes before what is fetched ahead but waits
    for the transfer that runs. What is fetched ahead replaces the worst item that neither the running layer uses nor
    a later one is expected to; if there is none, or its layer begins before its transfer does, it is left.
    Returns counts int32[P, 6] (columns above) and stall float64[P] seconds that a layer waits.
    """
    run = _Run(capacity, stack, length, value.copy(), link)
    begun: list[float] = []
    counts, stall = np.zeros((len(start) - 1, 6), np.int32), np.zeros(len(start) - 1)
    queue: list[tuple[int, int]] = []
    now = 0.0
    for p in range(len(start) - 1):
        cache = int(group[p % len(group)])
        begun.append(now)
        while queue:
            target, one = queue[0]
            begins = max(run.free, begun[target - ahead] + float(link[0]))
            if begins >= now:
                break
            queue.pop(0)
            counts[p, AHEAD] += run.fetch(one, int(group[target % len(group)]), p, begins)
        queue = [entry for entry in queue if entry[0] > p]
        uses = [(int(item[a]), int(tokens[a]), float(priority[a])) for a in range(int(start[p]), int(start[p + 1]))]
        ready = run.demand(uses, cache, p, now, counts[p])
        if p + ahead < len(start) - 1 and ahead > 0:
            more = want[want_start[p + ahead] : want_start[p + ahead + 1]].tolist()
            queue += [(p + ahead, one) for one in more]
            run.until.update(dict.fromkeys(more, p + ahead))
        stall[p] = max(0.0, ready - now)
        now += float(stall[p] + compute[p])
    return counts, stall


class _Run:
    """there: items of each cache with the moment they are there · until: last position for which an item was wanted
    ahead · used: last position that asked for it · fresh: fetched ahead and not used since."""

    def __init__(self, capacity: Int64s, stack: Int32s, length: Int64s, value: Floats, link: Floats) -> None:
        self.capacity, self.value, self.link, self.free = capacity, value, link, 0.0
        kept = [min(int(size), int(own)) for size, own in zip(capacity, length, strict=True)]
        self.there = [dict.fromkeys(map(int, row[:count]), 0.0) for row, count in zip(stack, kept, strict=True)]
        self.until: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.fresh: set[int] = set()

    def fetch(self, one: int, cache: int, p: int, begins: float) -> bool:
        """Whether a transfer began."""
        there = self.there[cache]
        if one in there:
            return False
        if len(there) >= self.capacity[cache]:
            free = {old for old in there if self.until.get(old, -1) < p and self.used.get(old, -2) != p - 1}
            if not free:
                return False
            self._drop(_worst(free, self.value), cache)
        self.free = begins + float(self.link[1])
        there[one] = self.free
        self.fresh.add(one)
        return True

    def demand(self, uses: list[tuple[int, int, float]], cache: int, p: int, now: float, counts: Any) -> float:
        """The moment all of them are there."""
        there, ready, missing = self.there[cache], now, []
        for one, tokens, priority in uses:
            self.value[one], self.used[one] = priority, p
            if one not in there:
                missing.append(one)
                continue
            late = there[one] > now
            ready = max(ready, there[one])
            counts[LATE if late else HIT] += 1
            counts[HIT_TOKENS] += 0 if late else tokens
            counts[USED_AHEAD] += one in self.fresh
            self.fresh.discard(one)
        counts[MISS] += len(missing)
        if missing:
            self.free = max(self.free, now + float(self.link[0])) + len(missing) * float(self.link[1])
            ready = max(ready, self.free)
        for one in missing:
            self._keep(one, cache, p, now)
        return ready

    def _keep(self, one: int, cache: int, p: int, now: float) -> None:
        there = self.there[cache]
        if len(there) >= self.capacity[cache]:
            free = {old for old in there if self.until.get(old, -1) <= p}
            if not free or _worst({*free, one}, self.value) == one:
                return
            self._drop(_worst(free, self.value), cache)
        there[one] = now

    def _drop(self, one: int, cache: int) -> None:
        del self.there[cache][one]
        self.fresh.discard(one)


def _worst(items: set[int], value: Floats) -> int:
    return max(items, key=lambda one: (-value[one], one))
