"""Measured collectives as look-up tables of a profile: NCCL's all-to-all, and TensorRT-LLM's own over NVLink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easybalance_sim.cluster.hardware import DIRECTIONS, LinkTable
from easybalance_sim.errors import ProfileError
from easybalance_sim.profiling.link_fit import looked_up
from easybalance_sim.profiling.rows import LinkRow, Table
from easybalance_sim.profiling.tables import nvlink_collectives

ALL_TO_ALL, TWO_SIDED = "alltoall", "NVLinkTwoSided"
LEAST_JUDGED_BYTES = 1 << 18
"""NCCL is judged on messages of 256 KiB and more (some 20 rows of BF16): below it measures 6 to 17 µs at random."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LookUp:
    """One table for look-ups with the absolute errors in % of every second row, looked up between the others."""

    name: str
    table: LinkTable
    held_out: tuple[float, ...]


def nccl_tables(path: Path) -> tuple[LookUp, ...]:
    """NCCL's all-to-all of 16-bit rows, one table for each number of GPUs; other operations are left out."""
    read = nvlink_collectives.read_nccl(path)
    rows = [row for row in read.rows if row.mode == ALL_TO_ALL and row.dtype]
    _require(rows, read, ALL_TO_ALL)
    return tuple(_look_up("nccl", DIRECTIONS, group, read.source) for group in _by(rows, lambda row: row.ranks))


def nvlink_tables(path: Path, kernel: str = "") -> tuple[LookUp, ...]:
    """TensorRT-LLM's all-to-all of one kernel, `TWO_SIDED` where none is named; prepare counts into dispatch."""
    read = nvlink_collectives.read_trtllm(path)
    rows = [row for row in read.rows if row.kernel == (kernel or TWO_SIDED)]
    prepared = {(row.ranks, row.size): row.us for row in rows if row.phase == "prepare"}
    found: list[LookUp] = []
    for phase in DIRECTIONS:
        extra = prepared if phase == "dispatch" else {}
        of_phase = [row for row in rows if row.phase == phase and row.dtype]
        _require(of_phase, read, f"{phase} of {kernel or TWO_SIDED}")
        groups = _by(of_phase, lambda row: (row.dtype, row.ranks))
        found += [_look_up("nvlink", (phase,), group, read.source, extra) for group in groups]
    return tuple(found)


def _look_up(
    mode: str,
    phases: tuple[str, ...],
    rows: Sequence[LinkRow],
    source: str,
    extra: dict[tuple[int, int], float] | None = None,
) -> LookUp:
    """One curve over the bytes that leave a rank; of equal sizes the median. extra: µs by (ranks, size) on top."""
    measured, found = looked_up([row for row in rows if mode != "nccl" or row.size >= LEAST_JUDGED_BYTES])
    errors = np.abs(found / measured - 1) * 100
    points: dict[float, list[float]] = {}
    for row in rows:
        points.setdefault(row.nvlink_bytes, []).append(row.us + (extra or {}).get((row.ranks, row.size), 0.0))
    sent = sorted(points)
    table = LinkTable(
        mode=mode,
        phases=phases,
        dtype=rows[0].dtype,
        ranks=rows[0].ranks,
        sent_bytes=tuple(round(at, 1) for at in sent),
        us=tuple(round(float(np.median(points[at])), 2) for at in sent),
        band_p90=round(float(np.percentile(errors, 90)) / 100, 3) if len(errors) else 0.0,
        calibrated=True,
        source=f"{source}, {len(rows)} rows",
    )
    name = f"{mode} {' and '.join(phases)}, {table.dtype}, {table.ranks} ranks"
    return LookUp(name=name, table=table, held_out=tuple(map(float, errors)))


def _by(rows: Iterable[LinkRow], key: Callable[[LinkRow], object]) -> list[list[LinkRow]]:
    groups: dict[object, list[LinkRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def _require(rows: Sequence[LinkRow], table: Table[LinkRow], what: str) -> None:
    if not rows:
        raise ProfileError(f"holds no row of {what}", where=table.source, fix="give another table or --kernel")
