"""Fused MoE times of vLLM and SGLang from aiconfigurator (`moe_perf.parquet`): many kernels, dtypes and shapes.

`num_tokens` counts all ranks. Power-law rows are drawn as those of `draws`; balanced ones spread over all experts.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from easybalance_sim.profiling.rows import ExpertRow, Table, sift
from easybalance_sim.profiling.tables.columns import moe_row, parquet_rows

MOST_RANKS = 8
SHARDED = "tensor-parallel shards of experts, which the formula does not cover"
MANY_RANKS = f"more than {MOST_RANKS} ranks: the fused kernels' times there follow no model (p90 error 85-90 %)"
OTHER = "another kernel or dtype"
_COLUMNS = (
    "kernel_source", "moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
    "moe_ep_size", "distribution", "latency",
)  # fmt: skip


def read(path: Path, kernel: str, dtype: str) -> Table[ExpertRow]:
    """The usable rows of one `kernel_source` and `moe_dtype`. Raises `ProfileError` as `parquet_rows` does."""
    found = parquet_rows(path, _COLUMNS)
    return sift(str(path), ((moe_row(raw, counts=_balanced(raw)), _reason(raw, kernel, dtype)) for raw in found))


def _reason(raw: SimpleNamespace, kernel: str, dtype: str) -> str:
    if (raw.kernel_source, raw.moe_dtype) != (kernel, dtype):
        return OTHER
    if raw.moe_tp_size != 1:
        return SHARDED
    return MANY_RANKS if raw.moe_ep_size > MOST_RANKS else ""


def _balanced(raw: SimpleNamespace) -> tuple[int, ...]:
    """The rank's share of the assignments, one after another over its experts; empty for rows of another draw."""
    if raw.distribution != "balanced":
        return ()
    local = raw.num_experts // raw.moe_ep_size
    pairs = -(-raw.num_tokens * raw.topk // raw.moe_ep_size)
    return tuple(pairs // local + (expert < pairs % local) for expert in range(local))
