"""Small measured rows and tables for the tests of `profiling`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from easybalance_sim.profiling.rows import ExpertRow, LinkRow


def expert_row(**changes: Any) -> ExpertRow:
    """A row of 64 tokens over 4 ranks, 32 experts of widths 8 and 4."""
    values: dict[str, Any] = {
        "us": 100.0, "hidden": 8, "intermediate": 4, "experts": 32, "top_k": 4, "ep": 4, "slots": 32, "tokens": 64,
        "distribution": "uniform",
    }  # fmt: skip
    return ExpertRow(**(values | changes))


def link_row(**changes: Any) -> LinkRow:
    """A low-latency dispatch of 16 tokens on one node."""
    values: dict[str, Any] = {
        "us": 10.0, "curve": "c", "size": 16, "phase": "dispatch", "mode": "low_latency", "nodes": 1, "ranks": 8,
    }  # fmt: skip
    return LinkRow(**(values | changes))


def write_table(path: Path, base: dict[str, Any], *changes: dict[str, Any]) -> Path:
    """A Parquet table with one row per change of `base`."""
    pq.write_table(pa.Table.from_pylist([base | change for change in changes]), path)
    return path


def write_grouped_gemm(path: Path) -> Path:
    """A CSV as InferSim writes it: 1 to 1024 tokens on each of 8, 16 or 32 experts."""
    head = (
        "num_experts,num_gpus,num_local_experts,topk,hidden_size,intermediate_size,tokens_per_expert,up_proj_us,"
        "down_proj_us\n"
    )
    rows = [
        f"256,{256 // local},{local},8,7168,2048,{tokens},{local * us:.1f},{local * us / 2:.1f}\n"
        for local in (8, 16, 32)
        for tokens, us in ((2**size, 8 + 2**size / 20) for size in range(11))
    ]
    path.write_text(head + "".join(rows), encoding="utf-8")
    return path
