"""vLLM: JSON lines of expert load (eplb_config.expert_load_stats_path, vLLM PR #41141): one window per record.

Counts are of physical slots; every record holds the map that was in force, so a rebalance between records is no matter.
Records of the kind `eplb_load_meta` are passed over.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.array_files import as_counts
from easybalance_sim.trace.conversion import Conversion, Converted, settle_layers
from easybalance_sim.trace.count_windows import RecordedCounts, write_counts
from easybalance_sim.trace.slot_map import SlotMap

STATS, META, PLAN = "eplb_load_stats", "eplb_load_meta", "eplb_initial_mapping"
_RECORD_AGAIN = "record it again"


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line: expert_load [L][P] tokens of each slot, p2l_map [L][P] the expert in it."""

    record_type: str
    version: int
    step: int
    expert_load: list[list[int]]
    p2l_map: list[list[int]]


def convert(job: Conversion) -> list[Converted]:
    """Write the count trace. Raises `TraceError` naming the line, `UsageError` when the model's shape is unknown."""
    where = str(job.source)
    if job.slots is not None:
        raise UsageError("each record holds its own map of slots", where=where, fix="leave --plan-in-force out")
    lines = [(f"{where}: line {number}", line) for number, line in enumerate(_lines(job.source), 1) if line.strip()]
    records = [(place, record) for place, line in lines if (record := _record(line, place)) is not None]
    if not records:
        raise TraceError("holds no record of load", where=where, fix=_RECORD_AGAIN)
    maps = [_map(record, job, place) for place, record in records]
    experts = max(one.experts for one in maps)
    windows = [_logical(record, one, experts, place) for (place, record), one in zip(records, maps, strict=True)]
    _require_one_shape(windows, records)
    recorded = RecordedCounts(
        counts=np.stack(windows),
        layers=settle_layers(job, len(windows[0]), where),
        engine="vLLM",
        recorder=STATS,
        where=where,
        notes=_notes([record.step for _, record in records]),
    )
    return [write_counts(job, recorded)]


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", where=str(path), fix="check the path") from error


def _record(line: bytes, place: str) -> LoadRecord | None:
    try:
        content: Any = msgspec.json.decode(line)
        kind = content.get("record_type") if isinstance(content, dict) else None
        if kind == META:
            return None
        if kind == PLAN:
            raise TraceError("a placement, no load", where=place, fix="give the file of expert_load_stats_path")
        if kind != STATS or content.get("version") != 1:
            raise TraceError(f"no {STATS} record of version 1", where=place, fix=_RECORD_AGAIN)
        return msgspec.convert(content, LoadRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(f"no record of load: {error}", where=place, fix=_RECORD_AGAIN) from error


def _map(record: LoadRecord, job: Conversion, place: str) -> SlotMap:
    """The map of a record. E is what the user says, or the highest id + 1: every expert has a slot."""
    rows = _matrix(record.p2l_map, "p2l_map", place)
    said = job.experts or (job.model.experts if job.model else None)
    return SlotMap(expert_of_slot=rows, experts=said or int(rows.max()) + 1, name=f"{place}, p2l_map")


def _logical(record: LoadRecord, slots: SlotMap, experts: int, place: str) -> IntArray:
    counts = slots.counts(as_counts(_matrix(record.expert_load, "expert_load", place), place, "expert_load"))
    return np.pad(counts, ((0, 0), (0, experts - slots.experts)))


def _matrix(rows: list[list[int]], name: str, place: str) -> IntArray:
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {0}:
        raise TraceError(f"{name}: no rows of one length", where=place, fix=_RECORD_AGAIN)
    try:
        return np.array(rows, np.int64)
    except OverflowError as error:
        raise TraceError(f"{name}: a number is beyond 64 bits", where=place, fix=_RECORD_AGAIN) from error


def _require_one_shape(windows: list[IntArray], records: list[tuple[str, LoadRecord]]) -> None:
    for window, (place, _) in zip(windows, records, strict=True):
        if len(window) != len(windows[0]):
            raise TraceError(
                f"{len(window)} layers, {len(windows[0])} before", where=place, fix="give one model at a time"
            )


def _notes(steps: list[int]) -> tuple[str, ...]:
    back = sum(after <= before for before, after in itertools.pairwise(steps))
    return (f"step numbers go back {back} times: several runs follow each other",) if back else ()
