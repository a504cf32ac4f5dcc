"""Plain request traces: arrival_s,prompt_tokens,output_tokens and optionally tenant, cached_tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from easybalance_sim.simulate.serving.arrivals.readers import columns
from easybalance_sim.simulate.serving.arrivals.rows import (
    Reading,
    Rows,
    numbers,
    read_csv,
    refuse,
    tokens,
    workload,
)
from easybalance_sim.simulate.serving.workload import Workload

TIME, PROMPT, OUTPUT, TENANT, CACHED = "arrival_s", "prompt_tokens", "output_tokens", "tenant", "cached_tokens"
NO_TENANT = "all"


def matches(head: str) -> bool:
    """The three columns that must be there are."""
    return {TIME, PROMPT, OUTPUT} <= set(columns(head))


def read(path: Path, reading: Reading) -> Workload:
    """The requests at the times that the file says; empty tenants are called `all`. Raises `TraceError`."""
    frame = read_csv(path, reading.limit)
    arrival, prompt = numbers(frame, TIME, path), tokens(frame, PROMPT, path)
    if (arrival < 0).any():
        refuse(frame, TIME, arrival < 0, path, "give seconds from 0 on")
    cached = tokens(frame, CACHED, path) if CACHED in frame.columns else np.zeros(len(frame), np.int64)
    if (cached > prompt).any():
        refuse(frame, CACHED, cached > prompt, path, "give no more than prompt_tokens")
    rows = Rows(
        arrival_s=arrival,
        prompt=prompt,
        output=tokens(frame, OUTPUT, path),
        cached=cached,
        tenant=[name.strip() or NO_TENANT for name in frame[TENANT]] if TENANT in frame.columns else NO_TENANT,
    )
    return workload(rows, path, "request trace")
