"""Rows of a Parquet table, with the columns that a reader needs, and what expert tables have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.rows import ExpertRow


def parquet_rows(path: Path, columns: tuple[str, ...]) -> Iterator[SimpleNamespace]:
    """Every row with `columns` as attributes. Raises `ProfileError`: unreadable file, missing column."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise ProfileError(f"cannot read: {error}", where=str(path), fix="check the path") from error
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise ProfileError(f"column {missing[0]} is missing", where=str(path), fix="give a table of this kind")
    for values in zip(*(table.column(name).to_pylist() for name in columns), strict=True):
        yield SimpleNamespace(**dict(zip(columns, values, strict=True)))


def moe_row(raw: SimpleNamespace, **more: Any) -> ExpertRow:
    """The row with the columns that these tables name alike; more: the other fields, or some in their stead."""
    known: dict[str, Any] = {
        "us": raw.latency * 1e3,
        "hidden": raw.hidden_size,
        "intermediate": raw.inter_size,
        "experts": raw.num_experts,
        "top_k": raw.topk,
        "ep": raw.moe_ep_size,
        "slots": raw.num_experts,
        "tokens": raw.num_tokens,
        "distribution": raw.distribution,
        "kernel": raw.kernel_source,
    }
    return ExpertRow(**known | more)
