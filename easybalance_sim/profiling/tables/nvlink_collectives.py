"""Collectives of aiconfigurator: `nccl_perf` and `trtllm_alltoall_perf`, looked up rather than fitted.

NCCL's `message_size` counts elements, not bytes. All rows lie inside one NVLink domain. TensorRT-LLM's routing is
balanced: the bytes of a rank are those of uniform choices, a token once per distinct other rank.
"""

from __future__ import annotations

from pathlib import Path

from easybalance_sim.cost.network import row_bytes
from easybalance_sim.profiling.rows import LinkRow, Table, sift
from easybalance_sim.profiling.tables.columns import parquet_rows
from easybalance_sim.profiling.tables.deepep import expected_distinct

ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "int8": 1}
OTHER_DTYPE = f"another dtype than {', '.join(ELEMENT_BYTES)}"
_DTYPES = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
_NCCL = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_TRTLLM = (
    "op_name", "kernel_source", "moe_dtype", "moe_ep_size", "num_tokens", "hidden_size", "topk", "num_experts",
    "latency",
)  # fmt: skip


def read_nccl(path: Path) -> Table[LinkRow]:
    """One row per operation, dtype, GPUs and message; `size` is bytes. Raises `ProfileError` as `parquet_rows` does."""
    return sift(str(path), map(_nccl, map(vars, parquet_rows(path, _NCCL))))


def read_trtllm(path: Path) -> Table[LinkRow]:
    """Prepare, dispatch and combine; `size` is tokens per rank. Raises `ProfileError` as `parquet_rows` does."""
    return sift(str(path), ((_trtllm(vars(raw)), "") for raw in parquet_rows(path, _TRTLLM)))


def _nccl(raw: dict[str, object]) -> tuple[LinkRow, str]:
    ranks, dtype = int(str(raw["num_gpus"])), str(raw["nccl_dtype"])
    element = ELEMENT_BYTES.get(dtype, 0)
    size = int(str(raw["message_size"])) * element
    row = LinkRow(
        us=float(str(raw["latency"])) * 1e3,
        curve=f"{raw['op_name']} {dtype} {ranks} GPUs",
        size=size,
        mode=str(raw["op_name"]),
        nodes=1,
        ranks=ranks,
        nvlink_bytes=size * (ranks - 1) / ranks,
        dtype="bf16" if element == ELEMENT_BYTES["half"] else "",
    )
    return row, "" if element else OTHER_DTYPE


def _trtllm(raw: dict[str, object]) -> LinkRow:
    operation, kernel = str(raw["op_name"]), str(raw["kernel_source"])
    ranks, tokens, hidden, top_k, experts = (
        int(str(raw[name])) for name in ("moe_ep_size", "num_tokens", "hidden_size", "topk", "num_experts")
    )
    phase = operation.removeprefix("alltoall_")
    # Combine sends BF16 whatever was dispatched; what the low-precision one sends is not told.
    dtype = {"dispatch": _DTYPES.get(str(raw["moe_dtype"]), ""), "combine": "bf16"}.get(phase, "")
    copies = expected_distinct(ranks, experts, top_k) * (ranks - 1) / ranks
    return LinkRow(
        us=float(str(raw["latency"])) * 1e3,
        curve=f"{operation} {kernel} {raw['moe_dtype']} {ranks} ranks",
        size=tokens,
        phase=phase,
        mode=operation,
        nodes=1,
        ranks=ranks,
        nvlink_bytes=tokens * copies * row_bytes(hidden, dtype) if dtype else 0.0,
        dtype=dtype,
        kernel=kernel,
    )
