"""Small traces with a skew that a planner must find: two workloads, each with four hot experts of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray
from easybalance_sim.trace.schema import CountTrace, TraceMeta
from easybalance_sim.trace.writer import write_count_trace
from tests.trace_files import Columns, token_meta, write_trace

EXPERTS, TOP_K, RANKS, LAYERS = 16, 2, 4, (3, 5)
SLOTS, LIFE = 32, 8
WIDTHS = {"model": "skewed-moe", "hidden": 1024, "intermediate": 512, "weight_dtype": "bf16"}
HOT: dict[str, tuple[int, ...]] = {"left": (0, 1, 2, 3), "right": (8, 9, 10, 11)}


def skewed_meta(**changes: Any) -> TraceMeta:
    """A model whose widths are known, recorded on four ranks."""
    return token_meta(LAYERS, EXPERTS, TOP_K, **{"ranks": RANKS, **WIDTHS, **changes})


def skewed_columns(steps: int = 320, *, seed: int = 0, hot: Mapping[str, tuple[int, ...]] = HOT) -> Columns:
    """32 requests at a time, each 8 steps long, every second one of the workload `right`; hot experts weigh 8 : 1."""
    rng = np.random.default_rng(seed)
    step, slot = np.repeat(np.arange(steps), SLOTS), np.tile(np.arange(SLOTS), steps)
    birth = (step + slot % LIFE) // LIFE
    names = np.array(list(hot))
    weight = np.ones((len(names), EXPERTS))
    for row, chosen in enumerate(hot.values()):
        weight[row, list(chosen)] = 8
    workload = slot % len(names)
    race = rng.exponential(size=(len(step), len(LAYERS), EXPERTS)) / weight[workload][:, None, :]
    return {
        "step": step.astype(np.int32),
        "request": birth * SLOTS + slot,
        "position": ((step + slot) % LIFE).astype(np.int32),
        "phase": np.full(len(step), "decode"),
        "source_rank": (slot % RANKS).astype(np.int16),
        "workload": names[workload],
        "time_s": step * 0.025,
        "experts": race.argsort(axis=2)[:, :, :TOP_K].astype(np.uint8),
    }


def skewed_trace(path: Path, steps: int = 320, *, seed: int = 0, meta: TraceMeta | None = None) -> Path:
    """`skewed_columns` as a packed token trace."""
    return write_trace(path, skewed_columns(steps, seed=seed), meta or skewed_meta())


def window_counts(windows: int, *, seed: int = 0) -> AnyArray:
    """int64[W, L, E] assignments of windows with the same hot experts."""
    weight = np.ones(EXPERTS)
    weight[list(HOT["left"])] = 8
    rng = np.random.default_rng(seed)
    return rng.multinomial(4000 * TOP_K, weight / weight.sum(), size=(windows, len(LAYERS)))


def skewed_counts(path: Path, windows: int, *, seed: int = 0) -> Path:
    """A count trace; windows take turns between the workloads `left` and `right`, the first half is prefill."""
    order = np.arange(windows)
    trace = CountTrace(
        meta=skewed_meta(kind="counts"),
        paths=(str(path),),
        tokens=window_counts(windows, seed=seed),
        window=order,
        start_s=order.astype(float),
        span_s=np.ones(windows),
        phase=(order >= windows // 2).astype(np.uint8),
        workload=(order % 2).astype(np.int16),
        batch_tokens=np.full(windows, 4000),
        workloads=tuple(HOT),
    )
    write_count_trace(path, trace)
    return path
