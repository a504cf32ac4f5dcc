"""Counts that a recorder kept, checked and written as a count trace."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from easybalance_sim.arrays import AnyArray, IntArray
from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.trace.conversion import Conversion, Converted, settle_experts, settle_top_k, trace_meta
from easybalance_sim.trace.schema import UNKNOWN_PHASE, CountTrace, check_meta
from easybalance_sim.trace.slot_map import MOST_EXPERTS
from easybalance_sim.trace.writer import write_count_trace

_MOST = 2**53


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedCounts:
    """What a recorder held of each window.

    counts: int64[W, L, E] assignments to logical experts, all ranks together · layers: absolute ids of the L rows ·
    engine, recorder: who recorded · where: file or folder, for messages · top_k: what the recording itself says of K,
    0 = nothing · span: what one window is ("pass") · notes: for the user.
    """

    counts: IntArray
    layers: tuple[int, ...]
    engine: str
    recorder: str
    where: str
    top_k: int = 0
    span: str = "window"
    notes: tuple[str, ...] = ()


def write_counts(job: Conversion, recorded: RecordedCounts) -> Converted:
    """Write `job.output`; windows without any token are left out and said.

    Raises `TraceError` when no token was counted or `--divide-counts` does not fit, `UsageError` when the model's shape
    is unknown or another one.
    """
    where = recorded.where
    top_k = shape_of(job, experts=recorded.counts.shape[2], top_k=recorded.top_k, where=where)
    _require_exact(recorded)
    counts, notes = _kept(recorded)
    counts = _divided(counts, job.divide_counts, where)
    meta = trace_meta(job, "counts", recorded.layers, counts.shape[2], top_k, {})
    meta = msgspec.structs.replace(meta, engine=recorded.engine, recorder=recorded.recorder)
    check_meta(meta, where)
    windows = len(counts)
    tokens: IntArray = counts.sum(axis=2).max(axis=1) // top_k
    trace = CountTrace(
        meta=meta,
        paths=(),
        tokens=counts,
        window=np.arange(windows),
        start_s=np.zeros(windows),
        span_s=np.zeros(windows),
        phase=np.full(windows, UNKNOWN_PHASE, np.uint8),
        workload=np.zeros(windows, np.int16),
        batch_tokens=tokens,
    )
    write_count_trace(job.output, trace)
    return Converted(
        path=job.output, kind="counts", model=meta.model, tokens=int(tokens.sum()), steps=windows,
        layers=counts.shape[1], experts=counts.shape[2], top_k=top_k, notes=(*recorded.notes, *notes),
    )  # fmt: skip


def shape_of(job: Conversion, *, experts: int, top_k: int, where: str) -> int:
    """K, once what the user says of E and K agrees with the recording; top_k: what the recording says, 0 = nothing.

    Raises `UsageError` where they differ, or nobody says K.
    """
    says = {"num_experts": str(experts), "top_k": str(top_k)} if top_k else {"num_experts": str(experts)}
    said, k = settle_experts(job, says, where), settle_top_k(job, says, where)
    if said != experts:
        raise UsageError(f"holds {experts} experts, {said} expected", where=where, fix="correct --model or --experts")
    if top_k and k != top_k:
        raise UsageError(f"holds top-{top_k}, top-{k} expected", where=where, fix="correct --model or --top-k")
    if not 1 <= k <= experts <= MOST_EXPERTS:
        raise UsageError(f"top-{k} of {experts} experts", where=where, fix="correct --experts or --top-k")
    return k


def rows_of_model(job: Conversion, busy: npt.ArrayLike, where: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Absolute ids of the MoE layers among the rows of all hidden layers, and what to say of the others.

    busy: bool[H], row = layer id, whether the row holds any token. Raises `UsageError` when the model has other layers.
    """
    rows = np.asarray(busy, bool)
    found = tuple(int(layer) for layer in np.flatnonzero(rows))
    wanted = job.layers or (job.model.layers if job.model else None)
    if wanted is None:
        dense = len(rows) - len(found)
        what = f"{dense} of {len(rows)} layers hold no token and are taken for dense ones"
        return found, (what,) if dense and found else ()
    foreign = sorted(set(found) - set(wanted)) or sorted(layer for layer in wanted if layer >= len(rows))
    if foreign:
        what = f"layer {foreign[0]} has tokens" if foreign[0] < len(rows) else f"there is no layer {foreign[0]}"
        raise UsageError(
            f"{what}, the recording has {len(rows)} layers, {len(found)} of them with tokens",
            where=where,
            fix="correct --model or --layers",
        )
    return wanted, ()


def _require_exact(recorded: RecordedCounts) -> None:
    if recorded.counts.sum(dtype=np.float64) > _MOST:
        raise TraceError("counts add up to more than 2^53", where=recorded.where, fix="record it again")


def _kept(recorded: RecordedCounts) -> tuple[IntArray, tuple[str, ...]]:
    busy: AnyArray = np.asarray(recorded.counts.any(axis=(1, 2)))
    if not busy.any():
        raise TraceError("no token was counted", where=recorded.where, fix="record while requests are served")
    empty = int((~busy).sum())
    spans = f"{recorded.span}{'es' if recorded.span.endswith('s') else 's'}"
    return recorded.counts[busy], (f"{empty} of {len(busy)} {spans} hold no token: left out",) if empty else ()


def _divided(counts: IntArray, by: int, where: str) -> IntArray:
    if (counts % by).any():
        raise TraceError(f"not all counts are multiples of {by}", where=where, fix="correct --divide-counts")
    return counts // by
