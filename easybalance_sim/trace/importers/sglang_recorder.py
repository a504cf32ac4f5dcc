"""SGLang: dumps of its recorder (stat, stat_approx, per_pass, per_token), a file or a folder of all ranks' files.

Which mode recorded is told from the keys. `stat` and `per_pass` give a count trace with one window per pass,
`per_token` a token trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.arrays import IntArray
from easybalance_sim.errors import UsageError
from easybalance_sim.trace.conversion import Conversion, Converted
from easybalance_sim.trace.count_windows import RecordedCounts, rows_of_model, write_counts
from easybalance_sim.trace.sglang_dumps import PER_TOKEN, STAT, Passes, read_dumps, read_passes, stat_counts
from easybalance_sim.trace.sglang_tokens import write_tokens

ENOUGH_COUNTS = 32
"""So many counts larger than 0 do not share a factor by chance."""


def convert(job: Conversion) -> list[Converted]:
    """Write the trace. Raises `TraceError` for unusable dumps, `UsageError` where the model's shape differs."""
    if job.slots is not None:
        raise UsageError("a dump holds its own map of slots", where=str(job.source), fix="leave --plan-in-force out")
    mode, files = read_dumps(job.source)
    if mode == STAT:
        return [_stat(job, files)]
    said = job.experts or (job.model.experts if job.model else None)
    run = read_passes(job.source, mode, files, said)
    if mode == PER_TOKEN and not job.counts_only:
        return [write_tokens(job, run)]
    return [_per_pass(job, run)]


def _stat(job: Conversion, files: list[tuple[Path, dict[str, Any]]]) -> Converted:
    counts = stat_counts(files)
    if not counts[-1].any():
        order = "the buffer was not full: passes stand in the order of their time"
    else:
        order = (
            "passes may be rotated, since a circular buffer does not say where it began: only with "
            "--expert-distribution-recorder-buffer-size -1 is their order that of time"
        )
    notes = (order,) if len(counts) > 1 else ()
    return _written(job, counts, STAT, (*notes, *_multiplied(counts, job.divide_counts)))


def _per_pass(job: Conversion, run: Passes) -> Converted:
    ids = sorted({one.pass_id for one in run.passes})
    row = {pass_id: number for number, pass_id in enumerate(ids)}
    counts = np.zeros((len(ids), *run.slots.expert_of_slot.shape), np.int64)
    for one in run.passes:
        counts[row[one.pass_id]] += one.counts
    return _written(job, run.slots.counts(counts), run.mode, run.notes)


def _written(job: Conversion, counts: IntArray, mode: str, notes: tuple[str, ...]) -> Converted:
    where = str(job.source)
    layers, said = rows_of_model(job, counts.any(axis=(0, 2)), where)
    recorded = RecordedCounts(
        counts=counts[:, list(layers)],
        layers=layers,
        engine="SGLang",
        recorder=f"expert_distribution_recorder {mode}",
        where=where,
        span="pass",
        notes=(*notes, *said),
    )
    return write_counts(job, recorded)


def _multiplied(counts: IntArray, divided_by: int) -> tuple[str, ...]:
    """Ranks that all see the same tokens add up to a multiple of each count."""
    held = counts[counts > 0]
    factor = int(np.gcd.reduce(held)) if len(held) else 1
    if factor // divided_by < 2 or factor % divided_by or len(held) < ENOUGH_COUNTS:
        return ()
    factor //= divided_by
    return (
        f"all counts are multiples of {factor}, as where {factor} ranks record the same tokens (no all-to-all): "
        f"--divide-counts {factor * divided_by} undoes it",
    )
