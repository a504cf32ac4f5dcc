"""Plain tables of counts: layer,expert,count or layer,c0,c1,…; with a column window or step if there are several.

One row per layer and expert, or one row per layer with a column per expert.

Source: `.csv` or `.parquet`. Rows that are not there count 0; every window must hold every layer.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.array_files import as_counts
from easybalance_sim.trace.conversion import Conversion, Converted, refuse_slots
from easybalance_sim.trace.count_windows import RecordedCounts, write_counts
from easybalance_sim.trace.slot_map import MOST_EXPERTS
from easybalance_sim.trace.tables import first_present, read_table

WINDOW, COUNT = ("window", "step"), ("count", "tokens")
_WIDE = re.compile(r"(?:c|e|expert_?)(\d{1,5})", re.IGNORECASE)
FIX = "give layer,expert,count or layer,c0,c1,… and optionally window"
_CELLS = 2**28


def convert(job: Conversion) -> list[Converted]:
    """Write the count trace. Raises `TraceError` naming column and row, `UsageError` when the shape does not fit."""
    refuse_slots(job)
    where = str(job.source)
    if not job.source.is_file():
        raise TraceError("no such file", where=where, fix="check the path")
    frame = read_table(job.source)
    if "layer" not in frame.columns or frame.empty:
        raise TraceError("no column layer, or no rows", where=where, fix=FIX)
    name = first_present(frame.columns, WINDOW)
    window = _ids(frame, name, where) if name else np.zeros(len(frame), np.int64)
    layer = _ids(frame, "layer", where)
    if layer.max() >= 1 << 16:
        raise TraceError(f"column layer: there is no layer {layer.max()}", where=where, fix=FIX)
    expert, counts = _long(frame, where) if "expert" in frame.columns else _wide(frame, where)
    layers = _layers(job, layer, where)
    experts = _experts(job, window, layer, expert, counts.ndim == 2, where)
    grid = _grid(window, layer, expert, counts, experts, where)
    recorded = RecordedCounts(counts=grid, layers=layers, engine="", recorder="table of counts", where=where)
    return [write_counts(job, recorded)]


def _ids(frame: pd.DataFrame, name: str, where: str) -> IntArray:
    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~((values >= 0) & (values < 2**53) & (values == np.floor(values))))
    if len(bad):
        shown = " ".join(str(frame[name].iloc[bad[0]]).split())[:40]
        raise TraceError(f"column {name}, row {bad[0]}: {shown} is no number from 0 on", where=where, fix=FIX)
    return values.astype(np.int64)


def _long(frame: pd.DataFrame, where: str) -> tuple[IntArray, IntArray]:
    """int64[n] expert and int64[n] count of each row."""
    name = first_present(frame.columns, COUNT)
    if name is None:
        raise TraceError("column count is missing", where=where, fix=FIX)
    return _ids(frame, "expert", where), _ids(frame, name, where)


def _wide(frame: pd.DataFrame, where: str) -> tuple[IntArray, IntArray]:
    """int64[E] experts of the columns and int64[n, E] counts."""
    names = {str(column): _WIDE.fullmatch(str(column)) for column in frame.columns}
    columns = {int(found[1]): name for name, found in names.items() if found}
    if sorted(columns) != list(range(len(columns))) or not columns:
        held = f"columns of {len(columns)} experts, not 0..{max(columns)}" if columns else "no column expert, no c0"
        raise TraceError(held, where=where, fix=FIX)
    counts = np.stack([_ids(frame, columns[expert], where) for expert in range(len(columns))], axis=1)
    return np.arange(len(columns)), counts


def _layers(job: Conversion, layer: IntArray, where: str) -> tuple[int, ...]:
    found = tuple(int(one) for one in np.unique(layer))
    named = job.layers or (job.model.layers if job.model else found)
    if set(named) != set(found):
        raise UsageError(
            f"holds {len(found)} layers ({found[0]}..{found[-1]}), {len(named)} others expected",
            where=where,
            fix="correct --layers or --model",
        )
    return found


def _experts(job: Conversion, window: IntArray, layer: IntArray, expert: IntArray, wide: bool, where: str) -> int:
    """E: as the user says, or the columns; of single rows only when every window and layer lists all of them."""
    seen = int(expert.max()) + 1
    said = job.experts or (job.model.experts if job.model else 0)
    cells = len(np.unique(window)) * len(np.unique(layer)) * seen
    if not said and not wide and cells != len(window):
        raise UsageError(
            f"experts up to {seen - 1} have rows, which need not be all", where=where, fix="pass --experts or --model"
        )
    if seen > min(said or seen, MOST_EXPERTS) or (wide and said and said != seen):
        raise UsageError(
            f"holds experts up to {seen - 1}, {said or MOST_EXPERTS} expected", where=where, fix="correct --experts"
        )
    return said or seen


def _grid(window: IntArray, layer: IntArray, expert: IntArray, counts: IntArray, experts: int, where: str) -> AnyArray:
    """int64[W, L, E]. Raises `TraceError` for a cell that is given twice and for a layer that a window lacks."""
    windows, w = np.unique(window, return_inverse=True)
    layers, at = np.unique(layer, return_inverse=True)
    if len(windows) * len(layers) * experts > _CELLS:
        raise TraceError(
            f"{len(windows)} windows × {len(layers)} layers × {experts} experts", where=where, fix="sum some windows"
        )
    wide = counts.ndim == 2
    cell = w * len(layers) + at if wide else (w * len(layers) + at) * experts + expert
    first, times = np.unique(cell, return_counts=True)
    if (times > 1).any():
        row = int(np.flatnonzero(cell == first[times > 1][0])[1])
        what = "layer" if wide else "expert"
        raise TraceError(f"row {row}: its window and {what} stand in an earlier row, too", where=where, fix="sum them")
    lacking = np.setdiff1d(np.arange(len(windows) * len(layers)), w * len(layers) + at)
    if len(lacking):
        one, other = divmod(int(lacking[0]), len(layers))
        raise TraceError(f"window {windows[one]} has no row of layer {layers[other]}", where=where, fix="give zeros")
    grid = np.zeros((len(windows), len(layers), experts), np.int64)
    if wide:
        grid[w, at, : counts.shape[1]] = counts
    else:
        grid[w, at, expert] = counts
    return as_counts(grid, where)
