"""Tables of expert counts: one row per layer with a list of E counts, optionally grouped by a text column.

Every group becomes a count trace of one window: `-o dsv3.parquet` writes `dsv3-4k.parquet` and `dsv3-8k.parquet` for a
table grouped by 4k and 8k.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.conversion import Conversion, Converted, settle_top_k, trace_meta
from easybalance_sim.trace.schema import NO_WORKLOAD, UNKNOWN_PHASE, CountTrace
from easybalance_sim.trace.tables import READABLE, column_names, file_says, read_table
from easybalance_sim.trace.writer import write_count_trace


def matches(path: Path) -> bool:
    """A file, or a folder with one table, with `layer` and `counts` and no windows of its own."""
    columns = column_names(_table_file(path))
    return "layer" in columns and "counts" in columns and "window" not in columns


def convert(job: Conversion) -> list[Converted]:
    """Write one count trace per group, all checked before the first is written. Raises `TraceError` or `UsageError`."""
    source = _table_file(job.source)
    frame, where = read_table(source), str(source)
    if frame.empty:
        raise TraceError("file has no rows", where=where, fix="record it again")
    top_k = settle_top_k(job, file_says(source), where)
    group = _group_column(frame, job.group_by, where)
    parts = {"": frame} if group is None else {str(name): part for name, part in frame.groupby(group, sort=False)}
    traces = {_output(job.output, name): _trace(job, part, name, top_k) for name, part in parts.items()}
    if len(traces) < len(parts):
        raise UsageError(f"groups of column {group} give equal file names", where=where, fix="rename the groups")
    for path, trace in traces.items():
        write_count_trace(path, trace)
    return [_report(path, trace) for path, trace in traces.items()]


def _table_file(path: Path) -> Path:
    """The only table of a folder, else the path itself."""
    inside = [file for file in path.glob("*") if file.suffix in READABLE] if path.is_dir() else []
    return inside[0] if len(inside) == 1 else path


def _group_column(frame: pd.DataFrame, asked: str | None, where: str) -> str | None:
    if asked is not None:
        if asked not in frame.columns or asked in ("layer", "counts"):
            raise UsageError(f"no grouping column {asked}", where=where, fix="correct --group-by")
        return asked
    texts = [str(c) for c in frame.columns if c != "counts" and isinstance(frame[c].iloc[0], str)]
    if len(texts) > 1:
        raise UsageError(f"several text columns ({', '.join(texts)})", where=where, fix="pick one with --group-by")
    return texts[0] if texts else None


def _output(output: Path, group: str) -> Path:
    if not group:
        return output
    return output.with_name(f"{output.stem}-{re.sub(r'[^A-Za-z0-9_.-]+', '_', group)}{output.suffix}")


def _trace(job: Conversion, frame: pd.DataFrame, group: str, top_k: int) -> CountTrace:
    where = f"{job.source}, group {group}" if group else str(job.source)
    layers, counts = _counts(frame, where)
    wanted = job.layers or (job.model.layers if job.model else layers)
    if set(wanted) != set(layers):
        raise UsageError(
            f"holds layers {_span(layers)}, not {_span(wanted)}", where=where, fix="correct --model or --layers"
        )
    counts = counts[[layers.index(layer) for layer in wanted]]
    experts = counts.shape[1]
    said = job.experts or (job.model.experts if job.model else experts)
    if said != experts or top_k > experts:
        raise UsageError(f"rows hold {experts} counts, {said} experts expected", where=where, fix="correct --experts")
    says = file_says(_table_file(job.source))
    return CountTrace(
        meta=trace_meta(job, "counts", tuple(wanted), experts, top_k, says),
        paths=(),
        tokens=counts[None],
        window=np.zeros(1, np.int64),
        start_s=np.zeros(1),
        span_s=np.zeros(1),
        phase=np.full(1, UNKNOWN_PHASE, np.uint8),
        workload=np.zeros(1, np.int16),
        batch_tokens=np.array([int(counts.sum(axis=1).max()) // top_k]),
        workloads=(group or NO_WORKLOAD,),
    )


def _counts(frame: pd.DataFrame, where: str) -> tuple[tuple[int, ...], IntArray]:
    """Layer ids in ascending order and int64[L, E]."""
    layers = pd.to_numeric(frame["layer"], errors="coerce").to_numpy(np.float64)
    if not np.isfinite(layers).all() or (layers < 0).any() or (layers != np.floor(layers)).any():
        raise TraceError("column layer must hold layer ids", where=where, fix="correct it")
    if len(np.unique(layers)) != len(layers):
        ids, times = np.unique(layers, return_counts=True)
        raise TraceError(
            f"layer {int(ids[times.argmax()])} stands in {times.max()} rows", where=where, fix="group with --group-by"
        )
    rows = [_numbers(value, int(layer), where) for value, layer in zip(frame["counts"], layers, strict=True)]
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise TraceError(f"rows hold {min(widths)} to {max(widths)} counts", where=where, fix="give E in every row")
    order = np.argsort(layers)
    return tuple(int(layers[i]) for i in order), np.stack(rows)[order]


def _numbers(value: Any, layer: int, where: str) -> IntArray:
    try:
        texts = value.strip("[]() ").replace(",", " ").split() if isinstance(value, str) else value
        numbers: AnyArray = np.asarray(texts, np.float64)
        whole = (numbers >= 0) & (numbers == np.floor(numbers))
        usable = numbers.ndim == 1 and numbers.size > 0 and bool(whole.all())
    except (ValueError, TypeError):
        usable = False
    if not usable:
        raise TraceError(f"column counts, layer {layer}: not a list of counts", where=where, fix="give numbers ≥ 0")
    return numbers.astype(np.int64)


def _report(path: Path, trace: CountTrace) -> Converted:
    windows, layers, experts = trace.tokens.shape
    return Converted(
        path=path,
        kind="counts",
        model=trace.meta.model,
        tokens=int(trace.batch_tokens.sum()),
        steps=windows,
        layers=layers,
        experts=experts,
        top_k=trace.meta.top_k,
    )


def _span(layers: tuple[int, ...]) -> str:
    return f"{min(layers)}..{max(layers)} ({len(layers)})"
