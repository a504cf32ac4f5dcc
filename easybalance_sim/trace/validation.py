"""What makes a token trace unusable, and the warm-up steps that recorders write first."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, Int32Array
from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import TokenBatch, TraceMeta


def check_steps(step: Int32Array, previous: int, where: str, first_row: int) -> None:
    """Raise `TraceError` with the row where steps go backwards or are negative."""
    back = np.flatnonzero(np.diff(step, prepend=np.int32(max(previous, 0))) < 0)
    if len(back):
        row = int(back[0])
        before = int(step[row - 1]) if row else previous
        raise TraceError(
            f"column step, row {first_row + row}: step goes back from {max(before, 0)} to {int(step[row])}",
            where=where,
            fix="sort the rows by step, or give separate recordings as separate files",
        )


def check_batch(batch: TokenBatch, meta: TraceMeta, where: str, first_row: int) -> None:
    """Raise `TraceError` for an id ≥ E or an expert twice in one top-k, with row, layer and fix."""
    check_ids(batch.experts, meta, where, first_row)


def check_ids(experts: AnyArray, meta: TraceMeta, where: str, first_row: int) -> None:
    """`check_batch` on bare ids [T, L, K]."""
    row, layer, kind = kernels.load().check_ids(experts, meta.experts)
    if kind == 0:
        return
    ids = experts[row, layer].tolist()
    place = f"column experts, row {first_row + row}, layer {meta.layers[layer]}"
    if kind == 1:
        raise TraceError(
            f"{place}: id {max(ids)} is not in 0..{meta.experts - 1}",
            where=where,
            fix="correct the ids (physical slot ids need their plan) or the number of experts in the metadata",
        )
    raise TraceError(
        f"{place}: expert {next(e for e in ids if ids.count(e) > 1)} stands twice in one top-{meta.top_k}",
        where=where,
        fix="record logical ids; a padded token must be left out",
    )


def warmup_tokens(batches: Iterable[TokenBatch]) -> int:
    """Tokens of the leading steps in which two or more tokens all carry identical ids in every layer.

    0 when every step is like that: then it is the traffic, not a warm-up.
    """
    dropped = 0
    for batch in batches:
        starts = np.flatnonzero(np.diff(batch.step, prepend=batch.step[0] - 1))
        for start, stop in zip(starts, [*starts[1:], batch.tokens], strict=True):
            rows = batch.experts[start:stop]
            if stop - start < 2 or not (rows == rows[0]).all():
                return dropped
            dropped += int(stop - start)
    return 0
