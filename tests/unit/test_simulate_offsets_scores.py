"""Which scores a trace holds, and that they give the recorded experts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from easybalance_sim.arrays import frozen
from easybalance_sim.errors import TraceError
from easybalance_sim.simulate.offsets.scores import BEST, BEST_PER_GROUP, FROZEN, FULL, Scores, scores_of
from easybalance_sim.simulate.offsets.support import what_ifs
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.schema import ScoreMeta, TokenBatch
from easybalance_sim.trace.writer import token_trace_writer
from tests.recorded_scores import best_per_group, inside, recorded_steps, with_runners_up
from tests.trace_files import token_trace

GROUPED = recorded_steps(experts=24, top_k=3, groups=4, topk_group=2)
PLAIN = recorded_steps()


def everything(steps: RecordedSteps) -> RecordedSteps:
    return with_runners_up(steps, np.ones((steps.tokens, steps.layers, steps.meta.experts), np.bool_), 5)


def within(steps: RecordedSteps) -> RecordedSteps:
    assert steps.scores is not None
    return with_runners_up(steps, inside(steps.scores, 4, 2) >= 0, 5)


def unmoved(scores: Scores) -> bool:
    shape = (scores.layers, scores.experts)
    none, ones = frozen(np.zeros(shape), np.float32), frozen(np.ones(shape), np.float32)
    found = scores.route(0, len(scores.recorded), none, ones, frozen(ones > 0))
    return bool((np.sort(found, axis=2) == np.sort(scores.recorded, axis=2)).all())


@pytest.mark.parametrize(
    ("steps", "mode", "groups"),
    [
        (PLAIN, FULL, 1),
        (GROUPED, FULL, 4),
        (everything(PLAIN), BEST, 1),
        (best_per_group(GROUPED, 4), BEST_PER_GROUP, 4),
        (best_per_group(GROUPED, 3), FROZEN, 1),
        (within(GROUPED), FROZEN, 1),
        (everything(GROUPED), FROZEN, 1),
    ],
    ids=["plain", "grouped", "runners-up", "four per group", "three per group", "inside the groups", "of all groups"],
)
def test_modes(steps: RecordedSteps, mode: str, groups: int) -> None:
    scores = scores_of(steps)
    assert (scores.mode, scores.groups, scores.is_frozen) == (mode, groups, mode == FROZEN)
    assert scores.explained > 0.99
    assert unmoved(scores)


def test_frozen_scores_stay_inside_the_groups_of_the_chosen_experts() -> None:
    scores = scores_of(everything(GROUPED))
    values = scores.values(0, 50)
    known, chosen = np.isfinite(values), np.zeros(values.shape, np.bool_)
    np.put_along_axis(chosen, scores.recorded[:50].astype(np.int64), True, axis=2)
    groups = known.reshape(50, 2, 4, 6).any(axis=3)
    assert (groups.sum(axis=2) <= 2).all()
    assert (known | ~chosen).all()


def test_ties_of_stored_scores_fall_as_they_fell() -> None:
    # Of experts 0 to 3 with the same stored score, a token took 3, another 1; the fifth is behind.
    stored = np.array([[[9, 9, 9, 9, 5, 3]]] * 4, np.uint16)
    steps = replace(
        recorded_steps(steps=2, tokens=2, layers=1, experts=6, top_k=1),
        scores=frozen(stored),
        experts=frozen([[[3]], [[1]], [[0]], [[2]]], np.uint8),
    )
    scores = scores_of(steps)
    assert scores.precision == 1 / 1024 and unmoved(scores)
    assert scores.head_start[:, 0].tolist() == [scores.precision / 2] * 2 + [0.0, scores.precision / 2]


def test_choices_that_scores_do_not_explain_never_change() -> None:
    ids = PLAIN.experts.copy()
    worst = np.asarray(PLAIN.scores)[0, 0].argsort()[:3]
    ids[0, 0] = worst
    scores = scores_of(replace(PLAIN, experts=frozen(ids)))
    assert scores.explained == pytest.approx(1 - 1 / (PLAIN.tokens * 2))
    large = frozen(np.where(np.isin(np.arange(16), worst), 1.0, 0.0) * np.ones((2, 1)), np.float32)
    ones = frozen(np.ones((2, 16)), np.float32)
    assert sorted(scores.route(0, 1, large, ones, frozen(ones > 0))[0, 0].tolist()) == sorted(worst.tolist())


def test_scores_of_another_router_are_refused() -> None:
    with pytest.raises(TraceError, match="choices follow from the scores"):
        scores_of(replace(PLAIN, experts=frozen((PLAIN.experts + 1) % 16)))


def test_traces_without_scores_are_refused() -> None:
    with pytest.raises(TraceError, match="holds no scores"):
        scores_of(replace(PLAIN, scores=None))
    with pytest.raises(TraceError, match="but not of the chosen experts"):
        scores_of(replace(everything(PLAIN), selection_scores=None))


def test_gates_are_recorded_or_shares_of_scores_without_bias() -> None:
    bias = np.full((2, 16), 0.25)
    meta = ScoreMeta(dtype="uint16", scale=1 / 1024, shift=0.0, bias=tuple(map(tuple, bias.tolist())))
    stored = np.zeros((PLAIN.tokens, 2, 16), np.uint16) + 256
    stored[:, :, [0, 1, 2]] = [1280, 768, 512]
    steps = replace(
        PLAIN,
        meta=msgspec.structs.replace(PLAIN.meta, all_scores=meta),
        scores=frozen(stored),
        experts=frozen(np.tile([0, 1, 2], (PLAIN.tokens, 2, 1)), np.uint8),
    )
    scores = scores_of(steps)
    # 1.25, 0.75 and 0.5, each less 0.25.
    np.testing.assert_allclose(scores.gates[0, 0], np.array([1.0, 0.5, 0.25]) / 1.75, rtol=1e-6)
    assert scores.gap == pytest.approx(0.25)
    recorded = frozen(np.full(PLAIN.experts.shape, 0.125), np.float16)
    assert scores_of(replace(steps, gates=recorded)).gates[0, 0].tolist() == [0.125] * 3


def test_scores_below_zero_are_logits() -> None:
    stored = np.full((PLAIN.tokens, 2, 16), -4.0, np.float16)
    stored[:, :, :3] = [-1.0, -2.0, -3.0]
    steps = replace(
        PLAIN,
        meta=msgspec.structs.replace(PLAIN.meta, all_scores=ScoreMeta()),
        scores=frozen(stored),
        experts=frozen(np.tile([0, 1, 2], (PLAIN.tokens, 2, 1)), np.uint8),
    )
    gates = np.exp([-1.0, -2.0, -3.0])
    np.testing.assert_allclose(scores_of(steps).gates[0, 0], gates / gates.sum(), rtol=1e-6)


def written(path: Path, steps: RecordedSteps) -> Path:
    batch = TokenBatch(
        step=np.repeat(steps.step, np.diff(steps.start)).astype(np.int32),
        request=steps.request,
        position=steps.position,
        phase=steps.phase,
        source_rank=steps.source_rank,
        workload=steps.workload,
        experts=steps.experts,
        all_scores=steps.scores,
        runner_up=steps.runner_up,
        runner_up_scores=steps.runner_up_scores,
        selection_scores=steps.selection_scores,
    )
    with token_trace_writer(path, steps.meta, steps.workloads) as writer:
        writer.append(batch)
    return path


@pytest.mark.parametrize(
    ("steps", "supported"),
    [
        (GROUPED, {"router offsets", "stability of offsets", "re-routing"}),
        (best_per_group(GROUPED, 4), {"router offsets", "stability of offsets", "re-routing"}),
        (within(GROUPED), {"router offsets", "re-routing"}),
        (replace(GROUPED, scores=None), set()),
    ],
    ids=["all scores", "four per group", "inside the groups", "no scores"],
)
def test_what_a_trace_supports(tmp_path: Path, steps: RecordedSteps, supported: set[str]) -> None:
    said = what_ifs(token_trace(written(tmp_path / "t.parquet", steps)))
    always = {"placements", "single steps", "admission", "quality by workload"}
    assert {one.name for one in said if one.supported} == always | supported
    assert all(one.why and "\n" not in one.why for one in said)
    assert said[0].to_dict() == {"name": "placements", "supported": True, "why": said[0].why}
