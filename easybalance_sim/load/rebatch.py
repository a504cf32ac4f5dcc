"""Re-batching: the fit side's own requests, run once more in topic order and in random order.

Recorded windows mix topics as the day mixed them. Traffic that comes next may be more concentrated, so the same
requests are queued again with similar ones as neighbours; a plan that stays balanced on those windows too holds up on
traffic that it has not seen. No labels are needed: requests are grouped by the experts they use. Random orders give
windows of the recorded mix that the day happened not to show, which few recorded windows need.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.linalg import eigh

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen, sealed, stream
from easybalance_sim.load.headroom import FEW_EXPERTS, spread
from easybalance_sim.trace.batching import schedule
from easybalance_sim.trace.scan import TraceScan
from easybalance_sim.trace.schema import TokenBatch, TraceMeta

Passes = Callable[[Callable[[Iterable[TokenBatch]], Any], int], Iterable[Any]]
"""passes(work, state_bytes): what work makes of the batches of each part of the traffic (see `TokenTrace.map`)."""

CLUSTERS = 6
COMPONENTS = 12
MOST_REQUESTS = 2048
MOST_FEATURES = 4096
RANDOM_ORDERS, ORDERS_OF_FEW_EXPERTS = 2, 4
"""At most: more windows are worth their time where the walk over them is longer, with few experts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rebatch:
    """Where each request runs when it is queued again. request: int64[Q] sorted ids · shift: int64[Q] added to its
    recorded steps · steps: the steps in which the batch is full."""

    request: IntArray
    shift: IntArray
    steps: int

    def new_steps(self, request: IntArray, step: Int32Array) -> IntArray:
        """int64[T] steps of tokens in the new order, -1 for requests that do not take part."""
        place = np.minimum(np.searchsorted(self.request, request), len(self.request) - 1)
        moved = step + self.shift[place]
        inside = (self.request[place] == request) & (moved >= 0) & (moved < self.steps)
        return np.where(inside, moved, -1)


def topic_order(usage: FloatArray, seed: int) -> IntArray:
    """int64[Q] an order of requests in which similar ones are neighbours.

    usage: float64[Q, D] how often each request used each expert (of a sample of layers). k-means (k = 6) on the 12
    leading components of the square roots of the shares; clusters follow one another along the first component.
    """
    share = usage / np.maximum(usage.sum(axis=1, keepdims=True), 1)
    roots = np.sqrt(share)
    points = _components(roots - roots.mean(axis=0))
    points *= np.where(points[np.abs(points).argmax(axis=0), np.arange(points.shape[1])] < 0, -1.0, 1.0)
    rng = stream(seed, "topics")
    order: IntArray = np.argsort(_clusters(points, rng) + rng.random(len(usage)) * 0.5, kind="stable")
    return order


def _components(centred: FloatArray) -> FloatArray:
    """float64[Q, C] of the rows of float64[Q, D] along the leading principal directions, the longest first.

    Of the two Gram matrices, whose leading eigenvectors lead to the same, the smaller one is taken apart.
    """
    few = len(centred) <= centred.shape[1]
    gram = centred @ centred.T if few else centred.T @ centred
    last = len(gram) - 1
    values, vectors = eigh(gram, subset_by_index=(max(0, last - COMPONENTS + 1), last))
    leading = vectors[:, ::-1]
    return leading * np.sqrt(np.maximum(values[::-1], 0)) if few else centred @ leading


def _clusters(points: FloatArray, rng: np.random.Generator) -> IntArray:
    """int64[Q] number of each point's cluster, clusters numbered along the first coordinate."""
    distinct = len(np.unique(points.round(9), axis=0))
    if distinct < 2:
        return np.zeros(len(points), np.int64)
    with warnings.catch_warnings():
        # A cluster that loses its last point keeps its old centre; that is harmless here.
        warnings.filterwarnings("ignore", message="One of the clusters is empty")
        centres, cluster = kmeans2(points, min(CLUSTERS, distinct), minit="++", seed=rng, missing="warn")
    number: IntArray = np.argsort(np.argsort(centres[:, 0]))[cluster]
    return number


def feature_layers(layers: int, experts: int) -> IntArray:
    """Rows of the layers that describe a request: evenly spread, few enough that L·E stays small."""
    count = max(1, min(layers, MOST_FEATURES // experts))
    return np.unique(np.linspace(0, layers - 1, count).round().astype(np.int64))


def sampled_requests(requests: IntArray, seed: int) -> IntArray:
    """At most `MOST_REQUESTS` of the sorted request ids, still sorted."""
    if len(requests) <= MOST_REQUESTS:
        return requests
    return np.sort(stream(seed, "rebatched requests").permutation(requests)[:MOST_REQUESTS])


def queue_again(order: IntArray, request: IntArray, first_step: IntArray, last_step: IntArray, at_once: int) -> Rebatch:
    """Run the requests again in `order`, `at_once` at a time.

    order: int64[q] indices into the others, each at most once · request: int64[Q] sorted ids · first_step, last_step:
    int64[Q] recorded life of each; a request keeps its pace, so its prefill stays a burst. Steps after the queue has
    run out are not full and are left out.
    """
    length = last_step - first_step + 1
    plan = schedule(length[order], max(1, min(at_once, len(order))))
    start = np.full(len(request), np.iinfo(np.int64).min // 2)
    start[order] = plan.start
    return Rebatch(request=request, shift=start - first_step, steps=plan.full_until)


@dataclass(frozen=True, kw_only=True, eq=False)
class Queue:
    """Requests of a fit side, ready to run again.

    over: passes over the fit side's tokens · request: int64[Q] sorted ids · first, last: int64[Q] recorded life of
    each, steps · at_once: how many run together · topics: int64[Q] their topic order, as indices into `request`.
    """

    over: Passes
    meta: TraceMeta
    request: IntArray
    first: IntArray
    last: IntArray
    at_once: int
    topics: IntArray
    seed: int

    def as_recorded(self, members: IntArray) -> IntArray:
        """The members (indices into `request`) in the order in which they came."""
        members = np.sort(members)
        return members[np.argsort(self.first[members], kind="stable")]

    def at_random(self, members: IntArray, run: int) -> IntArray:
        """The members (indices into `request`) in an order of the `run`-th draw."""
        return stream(self.seed, f"queue {run}").permutation(members)

    def by_topic(self, members: IntArray) -> IntArray:
        """The members in topic order."""
        return self.topics[np.isin(self.topics, members)]

    def windows(self, runs: Sequence[tuple[IntArray, int]], most: int) -> list[IntArray]:
        """int64[W ≤ most, L, E] for each run, an order and the steps per window, evenly spread over its full windows.

        One pass over the tokens.
        """
        again = {id(order): order for order, _ in runs}
        queued = {name: self._again(order) for name, order in again.items()}
        rows = [_rows(queued[id(order)].steps // steps, most) for order, steps in runs]
        wanted = [
            _Run(queued=queued[id(order)], steps=steps, row=row) for (order, steps), row in zip(runs, rows, strict=True)
        ]
        shape = (len(self.meta.layers), self.meta.experts)
        state_bytes = 8 * math.prod(shape) * sum(run.windows for run in wanted)
        out = [np.zeros((run.windows, *shape), np.int64) for run in wanted]
        for counted in self.over(partial(_count_again, runs=wanted, shape=shape), state_bytes):
            for total, part in zip(out, counted, strict=True):
                total += part
        return out

    def rebatched(self, recorded: int, steps: int, most: int) -> IntArray:
        """int64[W, L, E] windows of so many steps to search on beside the recorded ones, at most `most` with them.

        recorded: how many there are; at most half count. A quarter of all is in topic order, and the rest is filled
        with random orders, up to two, or four of at most `FEW_EXPERTS`.
        """
        everyone = np.arange(len(self.request))
        room, each = most - min(recorded, most // 2), most // 4
        random = ORDERS_OF_FEW_EXPERTS if self.meta.experts <= FEW_EXPERTS else RANDOM_ORDERS
        orders = [self.by_topic(everyone)]
        found = self._full_windows(orders[0], steps, each)
        while found < room and len(orders) <= random:
            orders.append(self.at_random(everyone, len(orders) - 1))
            found += self._full_windows(orders[-1], steps, each)
        return np.concatenate(self.windows([(order, steps) for order in orders], each))[:room]

    def _full_windows(self, order: IntArray, steps: int, most: int) -> int:
        """How many windows `windows` finds in an order."""
        return min(self._again(order).steps // steps, most)

    def _again(self, order: IntArray) -> Rebatch:
        return queue_again(order, self.request, self.first, self.last, self.at_once)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """One order of the requests, counted. row: int64[W+1], see `_rows`."""

    queued: Rebatch
    steps: int
    row: IntArray

    @property
    def windows(self) -> int:
        return int(self.row.max(initial=-1)) + 1


def _count_again(batches: Iterable[TokenBatch], *, runs: Sequence[_Run], shape: tuple[int, int]) -> list[IntArray]:
    """int64[w, L, E] of each run."""
    out = [np.zeros((run.windows, *shape), np.int64) for run in runs]
    queued = {id(run.queued): run.queued for run in runs}
    for batch in batches:
        new = {name: again.new_steps(batch.request, batch.step) for name, again in queued.items()}
        for run, counts in zip(runs, out, strict=True):
            step = new[id(run.queued)]
            # Index -1 falls on the last entry, which is -1 too.
            window = np.where(step >= 0, np.minimum(step // run.steps, len(run.row) - 1), -1)
            kernels.load().count_windows(batch.experts, sealed(run.row[window].astype(np.int32)), counts)
    return out


def _rows(windows: int, most: int) -> IntArray:
    """int64[W+1] row of each window among at most `most` that are spread evenly, -1 for the others and at the end."""
    row = np.full(windows + 1, -1, np.int64)
    kept = spread(np.arange(windows), most)
    row[kept] = np.arange(len(kept))
    return row


def queue_of(
    over: Passes,
    meta: TraceMeta,
    scan: TraceScan,
    requests: IntArray,
    fit_steps: int,
    seed: int,
) -> Queue | None:
    """The requests ready to be queued again; one pass over the fit side. None with fewer than two.

    requests: int64[Q] sorted ids of the fit side, of which at most `MOST_REQUESTS` are used · fit_steps: step numbers
    that they ran in, which gives how many run at once.
    """
    life = np.searchsorted(scan.request, requests)
    first, last = scan.request_first[life].astype(np.int64), scan.request_last[life].astype(np.int64)
    chosen = sampled_requests(requests, seed)
    if len(chosen) < 2:
        return None
    mine = np.isin(requests, chosen)
    return Queue(
        over=over,
        meta=meta,
        request=chosen,
        first=first[mine],
        last=last[mine],
        at_once=round(float((last - first + 1).sum()) / max(fit_steps, 1)),
        topics=topic_order(_usage(over, meta, chosen), seed),
        seed=seed,
    )


def _usage(over: Passes, meta: TraceMeta, requests: IntArray) -> FloatArray:
    """float64[Q, D] tokens of each request per expert, over a sample of layers."""
    layers = feature_layers(len(meta.layers), meta.experts)
    usage = np.zeros((len(requests), len(layers), meta.experts), np.int64)
    for part in over(partial(_count_usage, requests=requests, layers=layers, experts=meta.experts), usage.nbytes):
        usage += part
    return usage.reshape(len(requests), -1).astype(np.float64)


def _count_usage(batches: Iterable[TokenBatch], *, requests: IntArray, layers: IntArray, experts: int) -> IntArray:
    """int64[Q, l, E] of a part."""
    usage = np.zeros((len(requests), len(layers), experts), np.int64)
    for batch in batches:
        place = np.minimum(np.searchsorted(requests, batch.request), len(requests) - 1)
        row = np.where(requests[place] == batch.request, place, -1)
        kernels.load().count_windows(frozen(batch.experts[:, layers]), sealed(row.astype(np.int32)), usage)
    return usage
