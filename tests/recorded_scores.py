"""Recorded steps with made-up scores, and less of them: what a trace with fewer score columns would hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, frozen, sealed
from easybalance_sim.simulate.offsets.predictability import SHIFT
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import ScoreMeta, TraceMeta


def recorded_steps(
    seed: int = 0,
    *,
    steps: int = 60,
    tokens: int = 30,
    layers: int = 2,
    experts: int = 16,
    top_k: int = 3,
    groups: int = 1,
    topk_group: int = 1,
    skew: float = 0.1,
) -> RecordedSteps:
    """Independent tokens; `skew` lifts some experts' scores, so that loads are uneven. Scores are stored as uint16."""
    rng = np.random.default_rng(seed)
    total = steps * tokens
    lift = rng.normal(0, skew, (layers, experts))
    stored = np.clip((rng.random((total, layers, experts)) + lift + 1) * 1024, 0, 65535).astype(np.uint16)
    meta = TraceMeta(
        kind="tokens",
        layers=tuple(range(layers)),
        experts=experts,
        top_k=top_k,
        groups=groups,
        topk_group=topk_group,
        all_scores=ScoreMeta(dtype="uint16", scale=1 / 1024, shift=-1.0),
    )
    return RecordedSteps(
        meta=meta,
        step=frozen(np.arange(steps), np.int64),
        start=frozen(np.arange(steps + 1) * tokens, np.int64),
        experts=frozen(chosen(stored, top_k, groups, topk_group), np.uint8),
        request=frozen(np.arange(total), np.int64),
        position=frozen(np.zeros(total), np.int32),
        phase=frozen(np.zeros(total), np.uint8),
        workload=frozen(np.arange(total) % 2, np.int16),
        source_rank=frozen(np.zeros(total), np.int16),
        workloads=("a", "b"),
        scores=frozen(stored),
    )


def inside(stored: AnyArray, groups: int, topk_group: int) -> AnyArray:
    """int64[T, L, E] scores, -1 outside of the groups whose best two are worth most."""
    grouped = stored.astype(np.int64).reshape(*stored.shape[:2], groups, -1)
    worth = np.sort(grouped, axis=3)[..., -2:].sum(axis=3)
    kept = np.argsort(-worth, axis=2, kind="stable")[:, :, :topk_group]
    mask = np.zeros(worth.shape, np.bool_)
    np.put_along_axis(mask, kept, True, axis=2)
    found: AnyArray = np.where(mask[..., None], grouped, -1).reshape(stored.shape)
    return found


def chosen(stored: AnyArray, top_k: int, groups: int, topk_group: int) -> AnyArray:
    """int64[T, L, K] experts by group-limited routing, lower ids first among equals."""
    found: AnyArray = np.argsort(-inside(stored, groups, topk_group), axis=2, kind="stable")[:, :, :top_k]
    return found


def with_runners_up(steps: RecordedSteps, kept: AnyArray, many: int) -> RecordedSteps:
    """The steps with `many` runners-up instead of all scores: the best of kept bool[T, L, E] behind the chosen."""
    values = score_values(steps)
    assert values is not None
    ids = steps.experts.astype(np.int64)
    behind = np.where(kept, values, -np.inf)
    np.put_along_axis(behind, ids, -np.inf, axis=2)
    order = np.argsort(-behind, axis=2, kind="stable")[:, :, :many]
    return replace(
        steps,
        meta=msgspec.structs.replace(steps.meta, all_scores=msgspec.UNSET),
        scores=None,
        runner_up=frozen(order, np.uint8),
        runner_up_scores=frozen(np.take_along_axis(values, order, axis=2), np.float16),
        selection_scores=frozen(np.take_along_axis(values, ids, axis=2), np.float16),
    )


def best_per_group(steps: RecordedSteps, many: int) -> RecordedSteps:
    """The steps with the best `many` scores of every group, the chosen ones among them or beside them."""
    values = score_values(steps)
    assert values is not None
    grouped = values.reshape(*values.shape[:2], steps.meta.groups, -1)
    rank = np.argsort(np.argsort(-grouped, axis=3, kind="stable"), axis=3)
    kept = (rank < many).reshape(values.shape)
    return with_runners_up(steps, kept, many * steps.meta.groups - 1)


def score_values(steps: RecordedSteps) -> FloatArray | None:
    """float32[T, L, E] selection scores in the router's own units, None without them."""
    meta = steps.meta.all_scores
    if steps.scores is None or isinstance(meta, msgspec.UnsetType):
        return None
    values: FloatArray = steps.scores.astype(np.float32)
    values *= np.float32(meta.scale)
    values += np.float32(meta.shift)
    return sealed(values)


def overlaid(steps: RecordedSteps, copies: int, shift: int = SHIFT) -> RecordedSteps:
    """The tokens of `copies` copies in every step, each copy `shift` steps ahead of the one before.

    A model of more traffic of the same kind, with the same drift. Raises ValueError when no step is left.
    """
    length = len(steps) - shift * (copies - 1)
    if length < 1 or copies < 1:
        raise ValueError(f"{copies} copies {shift} steps apart need more than {len(steps)} steps")
    parts = [
        np.arange(steps.start[step + shift * copy], steps.start[step + shift * copy + 1])
        for step in range(length)
        for copy in range(copies)
    ]
    tokens, sizes = np.concatenate(parts), np.array([len(part) for part in parts]).reshape(length, copies).sum(axis=1)
    columns: dict[str, Any] = {
        name: frozen(value[tokens])
        for name, value in vars(steps).items()
        if isinstance(value, np.ndarray) and name not in ("step", "start", "counts")
    }
    start = frozen(np.concatenate([[0], np.cumsum(sizes)]), np.int64)
    return replace(steps, step=frozen(steps.step[:length]), start=start, **columns)
