"""Collectives of aiconfigurator: `nccl_perf` and `trtllm_alltoall_perf`, looked up rather than fitted.

NCCL's `message_size` counts elements, not bytes. All rows lie inside one NVLink domain.
"""

from __future__ import annotations

from pathlib import Path

from easybalance_sim.profiling.rows import LinkRow, Table, sift
from easybalance_sim.profiling.tables.columns import parquet_rows

ELEMENT_BYTES = {"half": 2, "int8": 1}
_NCCL = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_TRTLLM = ("op_name", "kernel_source", "moe_dtype", "moe_ep_size", "num_tokens", "hidden_size", "latency")


def read_nccl(path: Path) -> Table[LinkRow]:
    """One row per operation, dtype, GPUs and message; `size` is bytes. Raises `ProfileError` as `parquet_rows` does."""
    return sift(str(path), ((_nccl(vars(raw)), "") for raw in parquet_rows(path, _NCCL)))


def read_trtllm(path: Path) -> Table[LinkRow]:
    """Prepare, dispatch and combine; `size` is tokens per rank. Raises `ProfileError` as `parquet_rows` does."""
    return sift(str(path), ((_trtllm(vars(raw)), "") for raw in parquet_rows(path, _TRTLLM)))


def _nccl(raw: dict[str, object]) -> LinkRow:
    ranks, dtype = int(str(raw["num_gpus"])), str(raw["nccl_dtype"])
    size = int(str(raw["message_size"])) * ELEMENT_BYTES[dtype]
    return LinkRow(
        us=float(str(raw["latency"])) * 1e3,
        curve=f"{raw['op_name']} {dtype} {ranks} GPUs",
        size=size,
        mode=str(raw["op_name"]),
        nodes=1,
        ranks=ranks,
        nvlink_bytes=size * (ranks - 1) / ranks,
    )


def _trtllm(raw: dict[str, object]) -> LinkRow:
    ranks, operation = int(str(raw["moe_ep_size"])), str(raw["op_name"])
    return LinkRow(
        us=float(str(raw["latency"])) * 1e3,
        curve=f"{operation} {raw['kernel_source']} {raw['moe_dtype']} {ranks} ranks",
        size=int(str(raw["num_tokens"])),
        phase=operation.removeprefix("alltoall_"),
        mode=operation,
        nodes=1,
        ranks=ranks,
    )
