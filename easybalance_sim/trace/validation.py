"""What makes a token trace unusable, and the warm-up steps that recorders write first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, Int32Array
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import TokenBatch, TraceMeta


def check_steps(step: Int32Array, previous: int, where: str, first_row: int, rows_per_token: int = 1) -> None:
    """Raise `TraceError` with the row where steps go backwards or are negative.

    step: int32[T] · previous: the step before, -1 for none · first_row: file row of the first token.
    """
    before = np.concatenate([[max(previous, 0)], step[:-1]])
    back = np.flatnonzero(step < before)
    if len(back):
        token = int(back[0])
        raise TraceError(
            f"column step, row {first_row + token * rows_per_token}: step goes back from {before[token]} "
            f"to {step[token]}",
            where=where,
            fix="sort the rows by step, or give separate recordings as separate files",
        )


def check_batch(batch: TokenBatch, meta: TraceMeta, where: str, first_row: int, rows_per_token: int = 1) -> None:
    """Raise `TraceError` for an id ≥ E or an expert twice in one top-k, with row, layer and fix."""
    check_ids(batch.experts, meta, where, first_row, rows_per_token)


def check_ids(experts: AnyArray, meta: TraceMeta, where: str, first_row: int, rows_per_token: int = 1) -> None:
    """`check_batch` on bare ids [T, L, K]; first_row: file row of the first token."""
    token, layer, kind = kernels.load().check_ids(experts, meta.experts)
    if kind == 0:
        return
    ids = experts[token, layer].tolist()
    row = first_row + token * rows_per_token + (layer if rows_per_token > 1 else 0)
    if kind == 1:
        raise unknown_id(next(e for e in ids if e >= meta.experts), row, meta.layers[layer], meta, where)
    raise TraceError(
        f"column experts, row {row}, layer {meta.layers[layer]}: expert {next(e for e in ids if ids.count(e) > 1)} "
        f"stands twice in one top-{meta.top_k}",
        where=where,
        fix="record logical ids; a padded token must be left out",
    )


def unknown_id(expert: int, row: int, layer: int, meta: TraceMeta, where: str) -> TraceError:
    """The error for an id that is not in 0..E-1; row: of the file, layer: absolute id."""
    return TraceError(
        f"column experts, row {row}, layer {layer}: id {expert} is not in 0..{meta.experts - 1}",
        where=where,
        fix="correct the ids (physical slot ids need their plan) or the number of experts in the metadata",
    )


def alike_tokens(batches: Iterable[TokenBatch]) -> int:
    """Tokens of the leading steps in which two or more tokens all carry identical ids in every layer; of all steps when
    every one is like that."""
    dropped = 0
    for batch in batches:
        starts = batch.step_starts
        for start, stop in zip(starts, [*starts[1:], batch.tokens], strict=True):
            rows = batch.experts[start:stop]
            if stop - start < 2 or not (rows == rows[0]).all():
                return dropped
            dropped += int(stop - start)
    return dropped
