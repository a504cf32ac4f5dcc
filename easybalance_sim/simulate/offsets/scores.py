"""`Scores`: which scores a trace holds, and what can be told from them about another choice of experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, frozen, sealed
from easybalance_sim.errors import TraceError
from easybalance_sim.simulate.steps.recorded import RecordedSteps, require_scores
from easybalance_sim.trace.schema import ScoreMeta

FULL, BEST_PER_GROUP, BEST, FROZEN = "full", "best-per-group", "best", "frozen"
"""All scores · enough of every group that the group mask can be chosen again · the best of all, without groups · the
best inside the groups that were chosen."""

PER_GROUP = 4
"""Known scores of every group with which a replay differs from one with all scores by less than 0.002 in the step mean
(measured on a 14 M model with 8 groups of 8; 3 are not enough)."""

FROZEN_NOTE = (
    "scores only inside the recorded groups (group mask frozen): about 1.75 times as many assignments would change, "
    "the loop gain is about twice what is seen here, and instability stays hidden: no verdict on stability"
)
"""Factors measured on a 14 M model against its real run."""

FROZEN_CHANGED, FROZEN_GAIN = 1.75, 2.0

LEAST_EXPLAINED = 0.97
"""Share of choices that scores must explain: with fewer they are not what the router goes by."""

_LEVELS = (0.0, 0.5, 1.0, 2.0, 4.0)
_LOGITS = 0.01
_CHUNK = 8192
_SAMPLE = 4096
_SORTED = 2_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """The scores of recorded steps, and what makes them give the recorded experts.

    mode: one of the four above · groups, topk_group: as they are chosen again (1, 1 = group mask not chosen again) ·
    recorded: int32[T, L, K] experts · gates: float32[T, L, K] weights of them · bias: float32[L, E] what is in the
    scores and not in the weights · head_start: float32[T, L] see `kernels.reference_routing.route` · explained: share
    of choices [T, L] that follow from the stored scores up to their precision; the others never change · precision: of
    stored scores · gap: median distance from the last chosen expert's score to the best one behind.
    """

    steps: RecordedSteps
    mode: str
    groups: int
    topk_group: int
    recorded: Int32Array
    gates: AnyArray
    bias: AnyArray
    head_start: AnyArray
    explained: float
    precision: float
    gap: float

    @property
    def layers(self) -> int:
        """L."""
        return self.steps.layers

    @property
    def experts(self) -> int:
        """E."""
        return self.steps.meta.experts

    @property
    def is_frozen(self) -> bool:
        """Whether the group mask cannot be chosen again, so that stability cannot be judged."""
        return self.mode == FROZEN

    def values(self, first: int, end: int) -> AnyArray:
        """float32[end - first, L, E] scores of some tokens, -inf = not known."""
        return _values(self.steps, self.mode, first, end)

    def route(self, first: int, end: int, offset: AnyArray, factor: AnyArray, allowed: AnyArray) -> Int32Array:
        """int32[end - first, L, K] experts that tokens choose by score · factor - offset among the allowed ones; -1
        where fewer than K are allowed. offset, factor: float32[L, E] · allowed: bool[L, E], all read-only."""
        return self.routed(self.values(first, end), first, offset, factor, allowed)

    def routed(self, values: AnyArray, first: int, offset: AnyArray, factor: AnyArray, allowed: AnyArray) -> Int32Array:
        """The same for `values` that start at token `first`."""
        part = slice(first, first + len(values))
        out = np.empty(self.recorded[part].shape, np.int32)
        kernels.load().route(
            values, self.recorded[part], self.head_start[part], offset, factor, allowed, self.groups, self.topk_group,
            out,
        )  # fmt: skip
        return out


def scores_of(steps: RecordedSteps) -> Scores:
    """The scores of some steps. Raises `TraceError` when they hold none, or when experts were not chosen by them."""
    require_scores(steps)
    meta, mode = steps.meta, mode_of(steps)
    grouped = mode in (FULL, BEST_PER_GROUP)
    groups, topk_group = (meta.groups, meta.topk_group) if grouped else (1, 1)
    recorded = frozen(steps.experts, np.int32)
    precision = _precision(steps)
    head_start = _head_starts(steps, mode, recorded, groups, topk_group, precision)
    explained = float(np.isfinite(head_start).mean())
    if explained < LEAST_EXPLAINED:
        raise TraceError(
            f"only {explained:.1%} of choices follow from the scores and the groups of the metadata",
            where="column all_scores" if mode == FULL else "column selection_scores",
            fix="record the scores by which experts are chosen, bias included (docs/recording.md)",
        )
    return Scores(
        steps=steps,
        mode=mode,
        groups=groups,
        topk_group=topk_group,
        recorded=recorded,
        gates=_gates(steps, recorded),
        bias=_bias(steps),
        head_start=head_start,
        explained=explained,
        precision=precision,
        gap=_gap(steps, mode, groups, topk_group),
    )


def mode_of(steps: RecordedSteps) -> str:
    """Which of the four modes the scores of these steps allow. Raises `TraceError` for runners-up whose chosen experts
    have no scores."""
    if steps.scores is not None:
        return FULL
    if steps.selection_scores is None:
        raise TraceError(
            "the trace holds scores of runners-up, but not of the chosen experts",
            where="column selection_scores",
            fix="record it again, or with all_scores (docs/recording.md)",
        )
    if steps.meta.groups == 1:
        return BEST
    size = steps.meta.experts // steps.meta.groups
    known = _known_per_group(steps, slice(0, _SAMPLE))
    return BEST_PER_GROUP if known.min(initial=size) >= min(PER_GROUP, size) else FROZEN


def _known_per_group(steps: RecordedSteps, part: slice) -> AnyArray:
    """int64[T, L, G] experts of each group whose score is known, from runners-up."""
    values = _sparse(steps, part)
    shape = (*values.shape[:2], steps.meta.groups, -1)
    count: AnyArray = np.isfinite(values).reshape(shape).sum(axis=-1)
    return count


def _sparse(steps: RecordedSteps, part: slice) -> AnyArray:
    """float32[T, L, E] scores of chosen experts and runners-up, -inf elsewhere."""
    experts = steps.experts[part]
    values = np.full((*experts.shape[:2], steps.meta.experts), -np.inf, np.float32)
    known = [(steps.runner_up, steps.runner_up_scores), (steps.experts, steps.selection_scores)]
    for ids, scores in known:
        if ids is not None and scores is not None:
            np.put_along_axis(values, ids[part].astype(np.int64), scores[part].astype(np.float32), axis=2)
    return values


def _values(steps: RecordedSteps, mode: str, first: int, end: int) -> AnyArray:
    if steps.scores is None:
        values = _sparse(steps, slice(first, end))
        return sealed(_inside(steps, values, first, end) if mode == FROZEN else values)
    dense: AnyArray = steps.scores[first:end].astype(np.float32)
    meta = _meta(steps)
    if (meta.scale, meta.shift) != (1.0, 0.0):
        dense *= np.float32(meta.scale)
        dense += np.float32(meta.shift)
    return sealed(dense)


def _inside(steps: RecordedSteps, values: AnyArray, first: int, end: int) -> AnyArray:
    """Without what lies outside the recorded groups: where the known experts are of more groups than a token may
    choose, those of the chosen experts only."""
    meta = steps.meta
    size = meta.experts // meta.groups
    grouped = values.reshape(*values.shape[:2], meta.groups, size)
    many = np.isfinite(grouped).any(axis=3).sum(axis=2) > meta.topk_group
    own = np.zeros(grouped.shape[:3], np.bool_)
    np.put_along_axis(own, steps.experts[first:end].astype(np.int64) // size, True, axis=2)
    grouped[many[:, :, None] & ~own] = -np.inf
    return values


def _meta(steps: RecordedSteps) -> ScoreMeta:
    return ScoreMeta() if isinstance(steps.meta.all_scores, msgspec.UnsetType) else steps.meta.all_scores


def _precision(steps: RecordedSteps) -> float:
    """The step in which scores are stored: of float16 that of the largest score."""
    meta = _meta(steps)
    if steps.scores is not None and meta.dtype == "uint16":
        return meta.scale
    column = steps.scores if steps.scores is not None else steps.selection_scores
    sample = np.zeros(1, np.float16) if column is None else column[:_SAMPLE].astype(np.float16)
    spacing = float(np.spacing(np.abs(sample).max(initial=np.float16(0))))
    return spacing * (meta.scale if steps.scores is not None else 1.0)


def _chunks(tokens: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + _CHUNK, tokens)) for first in range(0, tokens, _CHUNK))


def _head_starts(
    steps: RecordedSteps, mode: str, recorded: Int32Array, groups: int, topk_group: int, precision: float
) -> AnyArray:
    """float32[T, L] the least of `_LEVELS` · precision with which scores choose the recorded experts, else inf."""
    out = np.full(recorded.shape[:2], np.inf, np.float32)
    wanted = np.sort(recorded, axis=2)
    for first, end in _chunks(len(recorded)):
        part = np.arange(first, end)
        values = _values(steps, mode, first, end)
        for level in _LEVELS:
            trial = frozen(np.full((len(part), recorded.shape[1]), level * precision), np.float32)
            chosen = _route_plainly(values, frozen(recorded[part]), trial, groups, topk_group)
            same = (np.sort(chosen, axis=2) == wanted[part]).all(axis=2)
            open_ = np.isinf(out[part])
            out[part] = np.where(open_ & same, trial, out[part])
            left = np.isinf(out[part]).any(axis=1)
            part, values = part[left], sealed(values[left])
            if not len(part):
                break
    return sealed(out)


def _route_plainly(values: AnyArray, recorded: AnyArray, head: AnyArray, groups: int, topk_group: int) -> Int32Array:
    shape = values.shape[1:]
    none, ones = frozen(np.zeros(shape), np.float32), frozen(np.ones(shape), np.float32)
    out = np.empty(recorded.shape, np.int32)
    kernels.load().route(values, recorded, head, none, ones, frozen(ones > 0), groups, topk_group, out)
    return out


def _gates(steps: RecordedSteps, recorded: Int32Array) -> AnyArray:
    """float32[T, L, K] of the recorded experts: as recorded, else their scores without the bias, as shares (of scores
    below zero the softmax)."""
    if steps.gates is not None:
        return frozen(steps.gates, np.float32)
    weights = _own_scores(steps, recorded)
    # Rounded scores near zero, less a rounded bias, may lie below it; logits do so often.
    if (weights < 0).mean() > _LOGITS:
        weights = np.exp(weights - weights.max(axis=2, keepdims=True))
    weights = np.maximum(weights, 0)
    total = weights.sum(axis=2, keepdims=True)
    return frozen(weights / np.maximum(total, np.finfo(np.float32).tiny), np.float32)


def _own_scores(steps: RecordedSteps, recorded: Int32Array) -> AnyArray:
    """float32[T, L, K] of the recorded experts, without the bias where the trace says what it is."""
    meta = _meta(steps)
    if steps.selection_scores is not None:
        own = steps.selection_scores.astype(np.float32)
    elif steps.scores is not None:
        own = np.take_along_axis(steps.scores, recorded.astype(np.int64), axis=2).astype(np.float32)
        own = own * np.float32(meta.scale) + np.float32(meta.shift)
    else:
        own = np.ones(recorded.shape, np.float32)
    own -= _bias(steps)[np.arange(steps.layers)[:, None], recorded]
    return own


def _bias(steps: RecordedSteps) -> AnyArray:
    """float32[L, E], zeros where the trace does not say."""
    said = _meta(steps).bias
    return frozen(said if said else np.zeros((steps.layers, steps.meta.experts)), np.float32)


def _gap(steps: RecordedSteps, mode: str, groups: int, topk_group: int) -> float:
    """Median over a sample of tokens and all layers; 0 where nothing behind the chosen experts is known."""
    stride = max(1, steps.tokens * steps.layers * steps.meta.experts // _SORTED)
    rows = [_values(steps, mode, token, token + 1) for token in range(0, steps.tokens, stride)]
    values: FloatArray = np.concatenate(rows).astype(np.float64)
    if groups > 1:
        grouped = values.reshape(*values.shape[:2], groups, -1)
        worth = np.sort(grouped, axis=3)[..., -2:].sum(axis=3)
        last = np.sort(worth, axis=2)[..., -topk_group, None]
        values = np.where((worth >= last)[..., None], grouped, -np.inf).reshape(values.shape)
    best = np.sort(values, axis=2)[:, :, ::-1]
    k = steps.meta.top_k
    if best.shape[2] <= k:
        return 0.0
    gaps = best[:, :, k - 1] - best[:, :, k]
    known = gaps[np.isfinite(gaps)]
    return float(np.median(known)) if known.size else 0.0
