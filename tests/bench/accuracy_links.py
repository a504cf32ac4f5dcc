"""Communication against the measured tables: held-out tokens and nodes, look-ups, DeepSeek's public figures."""

from __future__ import annotations

import numpy as np

from easybalance_sim.cluster.hardware import LinkTable, load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cost.look_up import looked_up_us
from easybalance_sim.cost.network import link_cost
from easybalance_sim.profiling import collectives
from easybalance_sim.profiling.link_fit import cross_link_us, looked_up
from easybalance_sim.profiling.rows import LinkRow
from easybalance_sim.profiling.tables import deepep, nvlink_collectives
from tests.bench.accuracy_rows import TABLES, Line, error_lines

DEEPEP = TABLES / "h100_sxm/comm/sglang/0.5.6.post2"
RDMA, NVLINK = 50e9, 450e9
LOW_LATENCY_TARGET = {"dispatch": 4.0, "combine": 8.0}
NCCL_SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm", "gb200")
# DeepEP docs/legacy.md, H800: µs at 128 tokens; GB/s over RDMA at 4096 tokens, the own node's copies counted.
PUBLIC_LOW_LATENCY_US = {16: (118, 195), 32: (155, 273), 64: (173, 314), 128: (192, 369), 256: (194, 360)}
PUBLIC_NORMAL_GB_PER_S = {16: (43, 43), 32: (58, 57), 64: (51, 50)}
PHASES = ("dispatch", "combine")


def deepep_lines() -> list[Line]:
    """Multi-node low latency by held-out tokens, normal mode on 1-4 nodes by held-out tokens and nodes."""
    lines: list[Line] = []
    low_latency = deepep.read_low_latency(DEEPEP / "wideep_deepep_ll_perf.parquet").rows
    normal = deepep.read_normal(DEEPEP / "wideep_deepep_normal_perf.parquet").rows
    for phase in PHASES:
        rows = [row for row in low_latency if row.phase == phase]
        lines += _held_out(
            f"h100 DeepEP low latency {phase}, held-out tokens", rows, "tokens", LOW_LATENCY_TARGET[phase]
        )
        rows = [row for row in normal if row.phase == phase and row.nodes <= 4]
        lines += _held_out(f"h100 DeepEP normal {phase}, 1-4 nodes, held-out tokens", rows, "tokens", 11.0)
        lines += _held_out(f"h100 DeepEP normal {phase}, 1-4 nodes, held-out nodes", rows, "nodes", 18.0)
    return lines


def look_up_lines() -> list[Line]:
    """Every second point of a collective's curve, looked up between the others."""
    lines: list[Line] = []
    for system in NCCL_SYSTEMS:
        rows = nvlink_collectives.read_nccl(TABLES / system / "comm/nccl/2.29.2/nccl_perf.parquet").rows
        measured, found = looked_up(rows)
        lines += error_lines(f"{system} NCCL look-up", found, measured, 9.0)
    path = TABLES / "gb200/comm/trtllm/1.3.0rc10/trtllm_alltoall_perf.parquet"
    measured, found = looked_up(nvlink_collectives.read_trtllm(path).rows)
    return lines + error_lines("gb200 TensorRT-LLM all-to-all look-up", found, measured, 4.0)


def shipped_lines() -> list[Line]:
    """The all-to-all tables that are shipped on the measured sizes that they leave out; NCCL from 256 KiB."""
    lines: list[Line] = []
    for system in NCCL_SYSTEMS:
        rows = collectives.nccl_tables(TABLES / system / "comm/nccl/2.29.2/nccl_perf.parquet")
        gpu = system.removesuffix("_sxm")
        lines += _shipped(f"{gpu} NCCL all-to-all, shipped table on other sizes", gpu, [one.table for one in rows], 9.0)
    path = TABLES / "gb200/comm/trtllm/1.3.0rc10/trtllm_alltoall_perf.parquet"
    found = [one.table for one in collectives.nvlink_tables(path)]
    return lines + _shipped("gb200 NVLink all-to-all, shipped tables on other sizes", "gb200", found, 4.0)


def _shipped(item: str, gpu: str, full: list[LinkTable], target: float) -> list[Line]:
    known = {(one.mode, one.phases, one.dtype, one.ranks): one for one in load_profile(gpu).link_tables}
    measured: list[float] = []
    found: list[float] = []
    for table in full:
        ours = known.get((table.mode, table.phases, table.dtype, table.ranks))
        if ours is None:
            continue
        least = collectives.LEAST_JUDGED_BYTES * (table.ranks - 1) / table.ranks if table.mode == "nccl" else 0
        # Shipped sizes are rounded to six digits.
        other = [
            (at, us)
            for at, us in zip(table.sent_bytes, table.us, strict=True)
            if at >= least and min(abs(at / knot - 1) for knot in ours.sent_bytes) > 1e-4
        ]
        sizes = np.array([at for at, _ in other])
        measured += [us for _, us in other]
        found += looked_up_us(ours.sent_bytes, ours.us, sizes, what="bytes", where=ours.source).tolist()
    return error_lines(item, np.array(found), np.array(measured), target)


def public_lines() -> list[Line]:
    """The shipped H800 rows on DeepSeek's published figures: the worst error of all with 16 ranks and more."""
    worst = {mode: np.array(_public_errors(mode)) for mode in ("low_latency", "normal")}
    return [
        Line(
            item=f"h800 {mode.replace('_', ' ')} on DeepSeek's table, largest error",
            measured=float(found.max()),
            target=15.0,
            rows=len(found),
        )
        for mode, found in worst.items()
    ]


def _public_errors(mode: str) -> list[float]:
    found: list[float] = []
    public = PUBLIC_LOW_LATENCY_US if mode == "low_latency" else PUBLIC_NORMAL_GB_PER_S
    for ranks, values in public.items():
        nodes = ranks // deepep.GPUS_PER_NODE
        for phase, value in zip(PHASES, values, strict=True):
            measured_us = float(value) if mode == "low_latency" else _normal_us(nodes, phase, value)
            found.append(abs(_shipped_us(mode, phase, nodes) / measured_us - 1) * 100)
    return found


def _normal_us(nodes: int, phase: str, gb_per_s: float) -> float:
    remote, _ = deepep.normal_copies(nodes, 256, 8)
    copies = 4096 * remote * nodes / (nodes - 1)
    return copies * deepep.copy_bytes(7168, "normal", phase) / (gb_per_s * 1e3)


def _shipped_us(mode: str, phase: str, nodes: int) -> float:
    cost = link_cost(load_profile("h800"), load_shape("deepseek-v3"), nodes, mode, phase)
    tokens = 128 if mode == "low_latency" else 4096
    per_token = deepep.low_latency_copies(nodes, 8) if mode == "low_latency" else deepep.normal_copies(nodes, 256, 8)
    copies = (np.array([[[round(tokens * each)]]], np.int32) for each in per_token)
    return float(cost.seconds(*copies)[0, 0]) * 1e6


def _held_out(item: str, rows: list[LinkRow], by: str, target: float) -> list[Line]:
    """Held-out tokens: every second token count, fitted on the others; nodes: each number of nodes in turn."""
    parity = {size: at % 2 for at, size in enumerate(sorted({row.size for row in rows}))}
    groups = [parity[row.size] if by == "tokens" else row.nodes for row in rows]
    found = cross_link_us(rows, groups, RDMA, NVLINK)
    return error_lines(item, found, np.array([row.us for row in rows]), target)
