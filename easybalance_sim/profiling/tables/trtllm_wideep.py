"""TensorRT-LLM wide-EP expert times of aiconfigurator (`wideep_moe_perf.parquet`), with and without EPLB.

`num_tokens` counts all ranks; `rank0_num_tokens` the distinct tokens of the timed rank, not its assignments. Each row
is one unseeded draw of the recipe in `draws`.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from easybalance_sim.profiling.rows import ExpertRow, Table, sift
from easybalance_sim.profiling.tables.columns import moe_row, parquet_rows

OLD_RECIPE_TOKENS = 16
OLD_RECIPE = f"without EPLB and up to {OLD_RECIPE_TOKENS} tokens an older recipe sent all or most of them to one rank"
BAD_SET = "hidden 7168, 32 ranks, 288 slots on GB200 is one bad measurement set (its neighbours are 1.4-1.6x faster)"
_COLUMNS = (
    "op_name", "device", "kernel_source", "num_tokens", "rank0_num_tokens", "hidden_size", "inter_size", "topk",
    "num_experts", "num_slots", "moe_ep_size", "distribution", "latency",
)  # fmt: skip


def read(path: Path) -> Table[ExpertRow]:
    """The usable rows; see the reasons above for the others. Raises `ProfileError` as `parquet_rows` does."""
    found = parquet_rows(path, _COLUMNS)
    return sift(str(path), ((row := _row(raw), _reason(row, str(raw.device))) for raw in found))


def _row(raw: SimpleNamespace) -> ExpertRow:
    return moe_row(
        raw,
        slots=raw.num_slots,
        distribution=raw.distribution.removesuffix("_eplb"),
        eplb=raw.op_name == "wideep_moe_eplb",
        arrived=raw.rank0_num_tokens,
    )


def _reason(row: ExpertRow, device: str) -> str:
    if not row.eplb and row.tokens <= OLD_RECIPE_TOKENS:
        return OLD_RECIPE
    if "GB200" in device and (row.hidden, row.ep, row.slots) == (7168, 32, 288):
        return BAD_SET
    return ""
