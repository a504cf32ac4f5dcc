"""What affinity costs: KV caches and running requests that lie unevenly, requests turned away from their node, and the
tokens that run before a request is known."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.simulate.admission.admit import Admitted
from easybalance_sim.simulate.admission.requests import Requests
from easybalance_sim.simulate.steps.balance import PERCENTILE, ratio

NIC_BYTES_PER_S = 50e9
"""What a KV cache moves at: one 400 Gb/s network card per GPU, as in the DGX H100 (NVIDIA DGX H100 user guide)."""


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """max/mean of a quantity over ranks or nodes, mean and 99th percentile over steps."""

    mean: float
    p99: float


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """Tokens that ran before their request was known.

    tokens_per_request: that were probed · moved_share: of requests whose first tokens ran on another node than the
    rest · kv_tokens_per_move: that the cache of such a request holds then · kv_bytes: of all moves, None = bytes of a
    token unknown · seconds_per_move: at the speed of the link · recomputed_share: of all tokens that run twice if the
    home computes them again instead · waited_steps: by which the first token of a probed request is later, because the
    rest of its prompt waits for the routing of the probe.
    """

    tokens_per_request: float
    moved_share: float
    kv_tokens_per_move: float
    kv_bytes: float | None
    seconds_per_move: float | None
    recomputed_share: float
    waited_steps: int


@dataclass(frozen=True, kw_only=True)
class Price:
    """What an admission costs. kv_rank, kv_node: tokens in KV caches · running_rank: running requests · waiting_share:
    of running requests that would wait if every rank had slots for its even share of the fullest step · spilled_share:
    of requests sent elsewhere than where they cost least · forced_share: for which every node was over the limit ·
    worst_overload: of a node at an admission that was not forced, over its fair share."""

    kv_rank: Evenness
    kv_node: Evenness
    running_rank: Evenness
    waiting_share: float
    spilled_share: float
    forced_share: float
    worst_overload: float
    cold: ColdStart

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return asdict(self)


def residents(requests: Requests, rank: AnyArray, ranks: int) -> tuple[FloatArray, FloatArray]:
    """float64[S, R] tokens in KV caches at the end of each step, and running requests; rank: int[Q]."""
    steps = len(requests.start) - 1
    kv, running = np.zeros((steps + 1, ranks)), np.zeros((steps + 1, ranks))
    step = np.repeat(np.arange(steps), np.diff(requests.start))
    np.add.at(kv, (step, rank[requests.of_token]), 1)
    np.add.at(kv, (requests.first, rank), requests.context)
    np.add.at(kv, (requests.last + 1, rank), -(requests.context + requests.tokens))
    np.add.at(running, (requests.first, rank), 1)
    np.add.at(running, (requests.last + 1, rank), -1)
    return np.cumsum(kv, axis=0)[:-1], np.cumsum(running, axis=0)[:-1]


def price_of(
    requests: Requests,
    admitted: Admitted,
    topology: Topology,
    *,
    first: int = 0,
    end: int | None = None,
    kv_bytes_per_token: int = 0,
    link_bytes_per_s: float = NIC_BYTES_PER_S,
) -> Price:
    """The price over the steps in places first..end-1, and over the requests that come in them."""
    kv, running = (held[first:end] for held in residents(requests, admitted.rank, topology.ranks))
    came = requests.first >= first
    came &= requests.first < (len(requests.start) - 1 if end is None else end)
    calm = came & ~admitted.forced
    return Price(
        kv_rank=_evenness(kv),
        kv_node=_evenness(_by_node(kv, topology)),
        running_rank=_evenness(running),
        waiting_share=_waiting(running),
        spilled_share=_share(admitted.spilled[came]),
        forced_share=_share(admitted.forced[came]),
        worst_overload=float(admitted.overload[calm].max(initial=0.0)),
        cold=_cold_start(requests, admitted, topology, came, kv_bytes_per_token, link_bytes_per_s),
    )


def _cold_start(
    requests: Requests, admitted: Admitted, topology: Topology, came: AnyArray, token_bytes: int, bytes_per_s: float
) -> ColdStart:
    probed = np.minimum(admitted.probed, requests.tokens)
    moved = admitted.moved(topology.node_of_rank) & came
    carried = (requests.context + probed)[moved]
    tokens = float(carried.mean()) if carried.size else 0.0
    return ColdStart(
        tokens_per_request=float(probed[came].mean()) if came.any() else 0.0,
        moved_share=_share(moved[came]),
        kv_tokens_per_move=tokens,
        kv_bytes=float(carried.sum() * token_bytes) if token_bytes else None,
        seconds_per_move=tokens * token_bytes / bytes_per_s if token_bytes else None,
        recomputed_share=float(carried.sum() / max(int(requests.tokens[came].sum()), 1)),
        waited_steps=int(probed[came].any() and bool((probed < requests.chunk)[came].any())),
    )


def _by_node(held: FloatArray, topology: Topology) -> FloatArray:
    """float64[S, N], scaled to a mean rank of the node: nodes may differ in size."""
    of_node = topology.node_of_rank == np.arange(topology.nodes)[:, None]
    sums: FloatArray = held @ (of_node / of_node.sum(axis=1, keepdims=True)).T
    return sums


def _evenness(held: FloatArray) -> Evenness:
    known = ratio(held)
    known = known[~np.isnan(known)]
    if not known.size:
        return Evenness(mean=1.0, p99=1.0)
    return Evenness(mean=float(known.mean()), p99=float(np.percentile(known, PERCENTILE)))


def _waiting(running: FloatArray) -> float:
    slots = np.ceil(running.sum(axis=1).max(initial=0.0) / running.shape[1])
    return float(np.maximum(running - slots, 0).sum() / max(float(running.sum()), 1.0))


def _share(mask: IntArray | AnyArray) -> float:
    return float(mask.mean()) if len(mask) else 0.0
