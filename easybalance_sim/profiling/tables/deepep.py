"""DeepEP times of aiconfigurator: `wideep_deepep_ll_perf` and `wideep_deepep_normal_perf`, every rank equally loaded.

Tokens are those of one rank. Routing is uniform and, in normal mode, limited to 4 nodes per token. A node holds 8 GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from pathlib import Path

from easybalance_sim.cost.network import FP8_SCALE_SHARE, LOW_LATENCY_HEADER_BYTES
from easybalance_sim.profiling.rows import LinkRow, Table, sift
from easybalance_sim.profiling.tables.columns import parquet_rows

GPUS_PER_NODE = 8
FULL_SMS = 24
MOST_NODES_PER_TOKEN = 4
MOST_TOKENS_ON_EIGHT_NODES = 8192
COPIED = "multi-node rows of the H200 are those of the H100, number for number"
FEW_SMS = f"timed with fewer than {FULL_SMS} SMs, which bound the bandwidth"
SLOW_FABRIC = "dispatch on 8 nodes ran at 17 GB/s, 2.4x slower than on 1-4 nodes: the fabric of that run"
CONGESTED = f"combine on 8 nodes jumps fourfold above {MOST_TOKENS_ON_EIGHT_NODES} tokens: congestion of that run"
_SHARED = ("device", "node_num", "hidden_size", "num_token", "num_topk", "num_experts")
_LOW_LATENCY = (*_SHARED, "dispatch_avg_t_us", "combine_avg_t_us")
_NORMAL = (
    *_SHARED, "dispatch_sms", "combine_sms", "dispatch_transmit_us", "dispatch_notify_us", "combine_transmit_us",
)  # fmt: skip


def read_low_latency(path: Path) -> Table[LinkRow]:
    """Dispatch and combine, one copy per assignment. Raises `ProfileError` as `parquet_rows` does."""
    found = [vars(raw) for raw in parquet_rows(path, _LOW_LATENCY)]
    copied = COPIED if _copied(found) else ""
    return sift(str(path), ((row, copied) for raw in found for row in _low_latency(raw)))


def read_normal(path: Path) -> Table[LinkRow]:
    """Dispatch and combine, one copy per distinct node and rank. Raises `ProfileError` as `parquet_rows` does."""
    found = [vars(raw) for raw in parquet_rows(path, _NORMAL)]
    copied = COPIED if _copied(found) else ""
    rows = ((row, sms) for raw in found for row, sms in _normal(raw))
    return sift(str(path), ((row, copied or _normal_reason(row, sms)) for row, sms in rows))


def copy_bytes(hidden: int, mode: str, phase: str) -> float:
    """Bytes of one copy: FP8 with scales on the way there, BF16 back (as `cost.network`)."""
    if phase == "combine":
        return 2.0 * hidden
    return hidden * (1 + FP8_SCALE_SHARE) + (LOW_LATENCY_HEADER_BYTES if mode == "low_latency" else 0)


def expected_distinct(groups: int, experts: int, top_k: int) -> float:
    """Distinct groups that `top_k` different experts, chosen uniformly, fall into on average."""
    inside = experts // groups
    return groups * (1 - comb(experts - inside, top_k) / comb(experts, top_k))


def normal_copies(nodes: int, experts: int, top_k: int) -> tuple[float, float]:
    """Copies of one token over RDMA and NVLink: its distinct other nodes, and the distinct other ranks of its nodes.

    Above 4 nodes the benchmark picks 4 of them first, as group-limited routing does.
    """
    reached = min(nodes, MOST_NODES_PER_TOKEN)
    eligible = experts * reached // nodes
    distinct_nodes = expected_distinct(reached, eligible, top_k)
    distinct_ranks = expected_distinct(reached * GPUS_PER_NODE, eligible, top_k)
    return distinct_nodes * (nodes - 1) / nodes, distinct_ranks * (GPUS_PER_NODE - 1) / GPUS_PER_NODE


def low_latency_copies(nodes: int, top_k: int) -> tuple[float, float]:
    """Copies of one token over RDMA and NVLink: one per assignment, its own rank left out."""
    return top_k * (nodes - 1) / nodes, top_k * (GPUS_PER_NODE - 1) / (nodes * GPUS_PER_NODE)


def _copied(found: list[dict[str, object]]) -> bool:
    nodes = [raw["node_num"] for raw in found]
    return any("H200" in str(raw["device"]) for raw in found) and len(set(nodes)) > 1


def _low_latency(raw: dict[str, object]) -> Iterator[LinkRow]:
    for phase in ("dispatch", "combine"):
        yield _row(raw, "low_latency", phase, us=raw[f"{phase}_avg_t_us"])


def _normal(raw: dict[str, object]) -> Iterator[tuple[LinkRow, object]]:
    for phase in ("dispatch", "combine"):
        notify = raw["dispatch_notify_us"] if phase == "dispatch" else 0.0
        yield _row(raw, "normal", phase, us=raw[f"{phase}_transmit_us"], notify=notify), raw[f"{phase}_sms"]


def _row(raw: dict[str, object], mode: str, phase: str, *, us: object, notify: object = 0.0) -> LinkRow:
    nodes, hidden, tokens, top_k, experts = (int(str(raw[name])) for name in _SHARED[1:])
    copies = low_latency_copies(nodes, top_k) if mode == "low_latency" else normal_copies(nodes, experts, top_k)
    size = copy_bytes(hidden, mode, phase)
    return LinkRow(
        us=float(str(us)),
        curve=f"{mode} {phase} {nodes} nodes hidden {hidden} top-{top_k} of {experts}",
        size=tokens,
        phase=phase,
        mode=mode,
        nodes=nodes,
        ranks=nodes * GPUS_PER_NODE,
        rdma_bytes=tokens * copies[0] * size,
        nvlink_bytes=tokens * copies[1] * size,
        notify_us=float(str(notify)),
    )


def _normal_reason(row: LinkRow, sms: object) -> str:
    if sms != FULL_SMS:
        return FEW_SMS
    if row.nodes == 8 and row.phase == "dispatch":
        return SLOW_FABRIC
    if row.nodes == 8 and row.size > MOST_TOKENS_ON_EIGHT_NODES:
        return CONGESTED
    return ""
