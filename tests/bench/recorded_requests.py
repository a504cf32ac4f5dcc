"""GPT-OSS-20B decode routing by request, queued again for benchmarks: 64 requests at once, one token per step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, IntArray, frozen
from easybalance_sim.load.counting import Windowing
from easybalance_sim.load.rebatch import topic_order
from easybalance_sim.load.selection import Selection
from easybalance_sim.replay.traffic import TokenTraffic
from easybalance_sim.trace.batching import schedule, token_steps
from easybalance_sim.trace.dataset import TokenTrace, open_trace
from easybalance_sim.trace.schema import DECODE, NO_WORKLOAD, TokenBatch, TraceMeta
from easybalance_sim.trace.writer import token_trace_writer

DATA = Path(__file__).parents[3] / "shared" / "data" / "gptoss20b_routing"
LAYERS, EXPERTS, TOP_K, AT_ONCE = 24, 32, 4, 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """experts: uint8[T, L, K], tokens of a request in a row · first, length: int64[Q] · by_domain: int64[Q] requests,
    one domain after the other."""

    experts: AnyArray
    first: IntArray
    length: IntArray
    by_domain: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """Requests after queueing. windows: int64[W, L, E, N] assignments per source node · experts: uint8[T, L, K] and
    node: int16[T] of the tokens in them."""

    windows: IntArray
    experts: AnyArray
    node: AnyArray


def recorded() -> Recorded:
    """The recording; skips the test where it is absent."""
    if not DATA.is_dir():
        pytest.skip("needs recorded routing at ../shared/data/gptoss20b_routing")
    table = pq.read_table(DATA / "routing_tokens.parquet")
    request = table["request_id"].to_numpy()
    experts = np.asarray(table["experts"].combine_chunks().values).reshape(-1, LAYERS, TOP_K)
    first = np.flatnonzero(np.diff(request, prepend=request[0] - 1))
    facts = pq.read_table(DATA / "requests.parquet").to_pandas().set_index("request_id").loc[request[first]]
    return Recorded(
        experts=experts.astype(np.uint8),
        first=first,
        length=np.diff(np.append(first, len(request))),
        by_domain=np.lexsort((request[first], facts["category"], facts["dataset"])),
    )


def splits(given: Recorded, seed: int) -> dict[str, tuple[IntArray, IntArray]]:
    """Queues of the fit and the held-out requests. shuffled: random halves · blocks: of two neighbours in domain order
    one each · unseen: half of the domains each."""
    rng, queue = np.random.default_rng([seed, 1]), given.by_domain
    mixed, half = rng.permutation(len(queue)), len(queue) // 2
    takes = np.zeros(len(queue), np.bool_)
    pair = np.arange(0, 2 * half, 2)
    takes[pair + rng.integers(0, 2, len(pair))] = True
    turned = np.roll(queue, rng.integers(len(queue)))
    return {
        "shuffled": (mixed[:half], mixed[half:]),
        "blocks": (queue[takes], queue[~takes]),
        "unseen": (turned[:half], turned[half:]),
    }


def serve(given: Recorded, queue: IntArray, steps: int, nodes: int, seed: int) -> Served:
    """Run the queue; windows of `steps` full steps; every request enters at a node drawn at random."""
    plan = schedule(given.length[queue], AT_ONCE)
    window = token_steps(plan) // steps
    row = np.concatenate([given.first[q] + np.arange(given.length[q]) for q in queue])
    node = np.repeat(np.random.default_rng([seed, 2]).integers(0, nodes, len(queue)), plan.length)
    inside = window < plan.full_until // steps
    window, row, node = window[inside], row[inside], node[inside]
    counts = np.zeros((nodes, plan.full_until // steps, LAYERS, EXPERTS), np.int64)
    for n in range(nodes):
        mine = node == n
        kernels.load().count_windows(frozen(given.experts[row[mine]]), frozen(window[mine], np.int32), counts[n])
    return Served(windows=np.moveaxis(counts, 0, -1), experts=given.experts[row], node=node.astype(np.int16))


def in_topic_order(given: Recorded, queue: IntArray, seed: int) -> IntArray:
    """The same requests, similar ones next to each other."""
    usage = np.zeros((len(queue), LAYERS, EXPERTS), np.int64)
    for at, q in enumerate(queue):
        mine = given.experts[given.first[q] : given.first[q] + given.length[q]]
        kernels.load().count_windows(frozen(mine), frozen(np.full(len(mine), at), np.int32), usage)
    return queue[topic_order(usage.reshape(len(queue), -1).astype(np.float64), seed)]


def searched_on(given: Recorded, queue: IntArray, steps: int, seed: int) -> dict[str, Any]:
    """What `ebsim plan` lets a search look at beside the windows of `serve`, as fields of a problem.

    From a trace file of the queue, as `ebsim trace convert` would make it.
    """
    meta = TraceMeta(kind="tokens", layers=tuple(range(LAYERS)), experts=EXPERTS, top_k=TOP_K)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "queue.parquet"
        with token_trace_writer(path, meta, (NO_WORKLOAD,), level=1) as writer:
            writer.append(token_batch(given, queue))
        trace = open_trace([path])
        assert isinstance(trace, TokenTrace)
        traffic = TokenTraffic(
            trace=trace, selection=Selection(), split=None, windowing=Windowing(steps=steps), settings={}
        )
        windows = traffic.fit_windows()
        finer = traffic.finer_windows(windows)
        return {
            "finer": None if finer is None else finer.tokens,
            "finer_steps": 1.0 if finer is None else float(finer.steps.mean()),
            "rebatched": traffic.rebatched_windows(windows, seed),
        }


def token_batch(given: Recorded, queue: IntArray) -> TokenBatch:
    """The tokens of the queue in the steps that it runs in, while the batch is full."""
    plan = schedule(given.length[queue], AT_ONCE)
    step, request = token_steps(plan), np.repeat(queue, plan.length)
    place = np.concatenate([np.arange(tokens) for tokens in plan.length])
    rows = np.argsort(step, kind="stable")
    rows = rows[step[rows] < plan.full_until]
    zeros = frozen(np.zeros(len(rows)), np.int16)
    return TokenBatch(
        step=frozen(step[rows], np.int32),
        request=frozen(request[rows], np.int64),
        position=frozen(place[rows], np.int32),
        phase=frozen(np.full(len(rows), DECODE), np.uint8),
        source_rank=zeros,
        workload=zeros,
        experts=frozen(given.experts[(given.first[request] + place)[rows]]),
    )
