"""Loads as deepseek-ai/EPLB takes them: one array weight[layers, experts], or [windows, layers, experts].

Source: `.npy`, `.npz`, `.pt`, `.safetensors` (one array, or one called `weight`) or `.json` (nested lists, bare or
under `weight`). Any numbers ≥ 0 do; loads that are no whole numbers are scaled to whole counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.array_files import read_arrays
from easybalance_sim.trace.conversion import Conversion, Converted, refuse_slots
from easybalance_sim.trace.count_windows import RecordedCounts, rows_of_model, write_counts
from easybalance_sim.trace.json_documents import MOST_SHOWN, decoded, documents

SCALED_TO = 1_000_000
"""Assignments of the busiest layer where loads are fractions."""
_ROUNDING = 1e-4
_MOST = 2.0**53


def convert(job: Conversion) -> list[Converted]:
    """Write the count trace. Raises `TraceError` naming layer and expert, `UsageError` when the shape does not fit."""
    refuse_slots(job)
    where = str(job.source)
    weight = _weight(job, where)
    counts, notes = _whole(weight)
    layers, more = _layers(job, counts, where)
    rows = list(range(counts.shape[1])) if len(layers) == counts.shape[1] else list(layers)
    recorded = RecordedCounts(
        counts=counts[:, rows], layers=layers, engine="", recorder="eplb weight", where=where, notes=notes + more
    )
    return [write_counts(job, recorded)]


def _weight(job: Conversion, where: str) -> AnyArray:
    """float64[W, L, E] numbers ≥ 0."""
    array = _of_json(job) if job.source.suffix == ".json" else _of_file(job, where)
    if array.dtype.kind not in "iuf" or array.ndim not in (2, 3) or 0 in array.shape:
        raise TraceError(
            f"is {str(array.dtype)[:40]} of shape {array.shape}, expected numbers of [layers, experts] or "
            "[windows, layers, experts]",
            where=where,
            fix="save weight[layers, experts]",
        )
    weight = array.astype(np.float64)
    bad = np.argwhere(~((weight >= 0) & (weight < np.inf)))
    if len(bad):
        place = tuple(int(n) for n in bad[0])
        raise TraceError(
            f"layer row {place[-2]}, expert {place[-1]}: load {weight[place]:g}", where=where, fix="give numbers ≥ 0"
        )
    return weight.reshape(-1, *weight.shape[-2:])


def _of_file(job: Conversion, where: str) -> AnyArray:
    arrays = read_arrays(job.source)
    if "weight" in arrays:
        return arrays["weight"]
    if len(arrays) != 1:
        names = ", ".join(map(ascii, sorted(arrays)))[:MOST_SHOWN] or "none"
        raise TraceError(f"holds {len(arrays)} arrays ({names})", where=where, fix="keep one, or call it weight")
    return next(iter(arrays.values()))


def _of_json(job: Conversion) -> AnyArray:
    (document,) = documents(job.source)
    content: Any = decoded(document, Any, "JSON")
    value = content.get("weight") if isinstance(content, dict) else content
    try:
        return np.asarray(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise TraceError(
            "rows hold different numbers of experts", where=document.where, fix="give one number per layer and expert"
        ) from error


def _whole(weight: AnyArray) -> tuple[IntArray, tuple[str, ...]]:
    """int64[W, L, E] counts in the proportions of the loads."""
    rounded, largest = np.rint(weight), weight.max()
    with np.errstate(over="ignore"):
        lost, total = np.abs(rounded - weight).sum(axis=2), weight.sum(axis=2)
    if total.max() < _MOST and (lost <= _ROUNDING * total).all():
        return rounded.astype(np.int64), ("loads are rounded to whole counts",) if lost.any() else ()
    shares = weight / largest
    counts = np.rint(shares * (SCALED_TO / shares.sum(axis=2).max()))
    note = f"loads are no counts: scaled to {SCALED_TO:,} assignments of the busiest layer, so tokens are made up"
    return counts.astype(np.int64), (note,)


def _layers(job: Conversion, counts: IntArray, where: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Absolute ids: those that --layers or --model name for the rows, else row = hidden layer, zero rows dense."""
    named = job.layers or (job.model.layers if job.model else ())
    if len(named) == counts.shape[1]:
        return named, ()
    return rows_of_model(job, np.asarray(counts.any(axis=(0, 2))), where)
