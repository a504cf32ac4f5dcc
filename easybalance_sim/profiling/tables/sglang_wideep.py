"""SGLang expert times behind DeepEP of aiconfigurator: `wideep_generation_moe_perf` and `wideep_context_moe_perf`.

`num_tokens` counts all ranks. Power-law rows are the mean of five draws. Generation times the masked kernel; context
the contiguous one, eagerly and with host launches inside, and passes the tokens of all ranks through its scatter and
gather.
"""

from __future__ import annotations

from pathlib import Path

from easybalance_sim.profiling.rows import ExpertRow, Table, sift
from easybalance_sim.profiling.tables.columns import moe_row, parquet_rows

UNPADDED = "uniform counts under 128 per expert were not padded to 128, so the kernel skipped blocks"
CONTIGUOUS_BLOCK = 128
_COLUMNS = (
    "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_ep_size", "distribution", "latency",
    "kernel_source",
)  # fmt: skip


def read_generation(path: Path) -> Table[ExpertRow]:
    """Decode rows, all usable. Raises `ProfileError` as `parquet_rows` does."""
    return sift(str(path), ((moe_row(raw, counts=_decode_counts(raw)), "") for raw in parquet_rows(path, _COLUMNS)))


def read_context(path: Path) -> Table[ExpertRow]:
    """Prefill rows without the uniform ones that were not padded. Raises `ProfileError` as `parquet_rows` does."""
    rows = (moe_row(raw, counts=_prefill_counts(raw)) for raw in parquet_rows(path, _COLUMNS))
    return sift(str(path), ((row, UNPADDED if _unpadded(row) else "") for row in rows))


def _unpadded(row: ExpertRow) -> bool:
    return row.distribution == "uniform" and row.tokens * row.top_k < CONTIGUOUS_BLOCK * row.experts


def _decode_counts(raw: object) -> tuple[int, ...]:
    """Uniform rows: the same count everywhere, or one token on as many experts as the rank receives assignments."""
    local, each, arriving = _uniform(raw)
    if each:
        return (each,) * local
    return (1,) * min(local, arriving) + (0,) * (local - min(local, arriving))


def _prefill_counts(raw: object) -> tuple[int, ...]:
    local, each, _ = _uniform(raw)
    return (each,) * local


def _uniform(raw: object) -> tuple[int, int, int]:
    """Experts of a rank, assignments of each, assignments of the rank; no experts for rows that are not uniform."""
    value = vars(raw)
    experts, ranks, pairs = (
        int(number) for number in (value["num_experts"], value["moe_ep_size"], value["num_tokens"])
    )
    pairs *= int(value["topk"])
    local = experts // ranks if value["distribution"] == "uniform" else 0
    return local, pairs // experts, pairs // ranks
