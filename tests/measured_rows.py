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
