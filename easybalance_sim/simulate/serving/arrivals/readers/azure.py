"""Azure LLM inference traces: TIMESTAMP,ContextTokens,GeneratedTokens; conversation and code, 2023 and 2024.

Source: Azure/AzurePublicDataset (Patel et al., "Splitwise", ISCA 2024; Stojkovic et al., "DynamoLLM", HPCA 2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.serving.arrivals.readers import columns
from easybalance_sim.simulate.serving.arrivals.rows import Reading, Rows, read_csv, refuse, tokens, workload
from easybalance_sim.simulate.serving.workload import Workload

TIME, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"


def matches(head: str) -> bool:
    """The three columns are there."""
    return {TIME, PROMPT, OUTPUT} <= set(columns(head))


def read(path: Path, reading: Reading) -> Workload:
    """The requests, the earliest at 0 s; the tenant is the file's name. Raises `TraceError`."""
    frame = read_csv(path, reading.limit)
    rows = Rows(
        arrival_s=_seconds(frame, path),
        prompt=tokens(frame, PROMPT, path),
        output=tokens(frame, OUTPUT, path),
        cached=np.zeros(len(frame), np.int64),
        tenant=path.stem,
    )
    return workload(rows, path, "Azure LLM inference trace")


def _seconds(frame: pd.DataFrame, path: Path) -> FloatArray:
    """float64[N] since the earliest; with fractions and time zone (2024: `+00:00`) or without."""
    stamps = pd.to_datetime(frame[TIME].str.strip(), format="ISO8601", utc=True, errors="coerce")
    if stamps.isna().any():
        refuse(frame, TIME, stamps.isna().to_numpy(), path, "give a time such as 2023-11-16 18:15:46.68")
    since = (stamps - stamps.min()).dt.total_seconds()
    seconds: FloatArray = np.asarray(since, np.float64)
    return seconds
