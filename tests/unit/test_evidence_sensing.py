"""Hot-spot rules on the recorded small model: the table that was measured when the rules were first compared.

All steps but the last 54, in which three tokens or fewer run. Windows of 300 ms, truth: the load over the next second.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.sensing.judging import DetectorRequest, Kind, judge_detectors
from easybalance_sim.simulate.steps.placements import contiguous, stacked
from easybalance_sim.simulate.steps.recorded import RecordedSteps, read_steps
from easybalance_sim.trace.dataset import TokenTrace, open_trace

RECORDING = Path(__file__).parents[2] / ".." / "shared" / "data" / "tinymoe_routing" / "tokens.parquet"
STEPS = 2280
TOLERANCE = 0.02
RULES = (
    "growing counts",
    "growing share",
    "jump",
    "above mean",
    "last window",
    "last 3 windows",
    "moving average",
    "trend",
)
RANK_OF_A_LAYER = (
    (0.067, 0.075, 0.18, 0.11),
    (0.015, 0.24, 0.13, 0.17),
    (0.24, 0.02, 0.18, 0.04),
    (0.21, 0.10, 0.72, 0.17),
    (0.058, 0.22, 0.46, 0.30),
    (0.027, 0.48, 0.45, 0.46),
    (0.023, 0.49, 0.40, 0.44),
    (0.17, 0.08, 0.48, 0.14),
)
"""Fires, precision, recall, F1 of each of `RULES`, threshold 1.2."""
HEAT_STACKED = (
    (0.088, 0.23, 0.28, 0.25),
    (0.016, 0.75, 0.17, 0.28),
    (0.24, 0.07, 0.22, 0.10),
    (0.28, 0.23, 0.93, 0.37),
    (0.073, 0.69, 0.72, 0.71),
    (0.070, 0.83, 0.83, 0.83),
    (0.070, 0.83, 0.83, 0.83),
    (0.11, 0.38, 0.62, 0.47),
)
HEAT_CONTIGUOUS = (
    (0.068, 0.12, 0.25, 0.16),
    (0.001, 0.53, 0.01, 0.03),
    (0.23, 0.02, 0.17, 0.04),
    (0.21, 0.14, 0.91, 0.25),
    (0.042, 0.38, 0.47, 0.42),
    (0.032, 0.54, 0.52, 0.53),
    (0.029, 0.55, 0.48, 0.51),
    (0.023, 0.25, 0.17, 0.20),
)
"""Threshold 1.1, the trend's 1.2."""


@pytest.fixture(scope="module")
def steps() -> RecordedSteps:
    """All of the recording."""
    if not RECORDING.is_file():
        pytest.skip(f"the recording of the small model is not at {RECORDING}")
    trace = open_trace([RECORDING])
    assert isinstance(trace, TokenTrace)
    return read_steps(trace, gates=False, scores=False)[0]


def kind_of(steps: RecordedSteps, plan: Plan, name: str, trend: float | None = None) -> Kind:
    """Rules on one kind of unit, prepared as the table was."""
    asked = DetectorRequest(kinds=(name,), end=STEPS, trend_threshold=trend)
    (kind,) = judge_detectors(steps, plan, np.zeros(plan.ranks, np.int64), asked).kinds
    return kind


def require_rows(kind: Kind, rows: tuple[tuple[float, ...], ...]) -> None:
    """Every figure of every rule within the tolerance."""
    scores = {score.rule: score for score in kind.scores}
    for rule, row in zip(RULES, rows, strict=True):
        score = scores[rule]
        measured = (score.fires, score.precision, score.recall, score.f1)
        assert measured == pytest.approx(row, abs=TOLERANCE), (kind.name, rule)


def test_ranks_of_a_layer(steps: RecordedSteps) -> None:
    kind = kind_of(steps, contiguous(8, 64, 8), "rank of a layer")
    assert (kind.units, kind.threshold) == (64, 1.2)
    assert kind.hot == pytest.approx(0.028, abs=0.001)
    require_rows(kind, RANK_OF_A_LAYER)


def test_what_sensors_see_and_what_comes(steps: RecordedSteps) -> None:
    kind = kind_of(steps, contiguous(8, 64, 8), "rank of a layer")
    wanted = {"last window": 0.54, "last 3 windows": 0.65, "moving average": 0.65, "trend": 0.33}
    assert kind.correlation == pytest.approx(wanted, abs=0.01)


def test_heat_of_ranks_with_the_hottest_experts_together(steps: RecordedSteps) -> None:
    kind = kind_of(steps, stacked(steps.counts[700:1300], 8), "rank heat")
    assert (kind.units, kind.threshold) == (8, 1.2)
    assert kind.hot == pytest.approx(0.070, abs=0.001)
    require_rows(kind, HEAT_STACKED)


def test_heat_of_contiguous_ranks_is_judged_at_a_lower_threshold(steps: RecordedSteps) -> None:
    kind = kind_of(steps, contiguous(8, 64, 8), "rank heat", trend=1.2)
    assert kind.threshold == 1.1
    assert kind.hot == pytest.approx(0.033, abs=0.001)
    require_rows(kind, HEAT_CONTIGUOUS)
    at_first = judge_detectors(
        steps,
        contiguous(8, 64, 8),
        np.zeros(8, np.int64),
        DetectorRequest(kinds=("rank heat",), threshold=1.2, end=STEPS),
    )
    assert at_first.kinds[0].hot == pytest.approx(0.001, abs=0.0005)


@pytest.mark.parametrize(
    ("name", "plan", "kept"),
    [("rank of a layer", "contiguous", 0.41), ("rank heat", "contiguous", 0.46), ("rank heat", "stacked", 0.61)],
)
def test_a_rise_mostly_goes_again(steps: RecordedSteps, name: str, plan: str, kept: float) -> None:
    placed = contiguous(8, 64, 8) if plan == "contiguous" else stacked(steps.counts[700:1300], 8)
    scores = {score.rule: score for score in kind_of(steps, placed, name).scores}
    assert scores["growing share"].kept == pytest.approx(kept, abs=TOLERANCE)
    assert scores["above mean"].kept > scores["growing share"].kept + 0.2


def test_the_plain_threshold_on_a_longer_window_beats_the_article(steps: RecordedSteps) -> None:
    kind = kind_of(steps, contiguous(8, 64, 8), "rank of a layer")
    verdict = kind.verdict
    assert verdict.best == "last 3 windows"
    assert verdict.halves == ("last 3 windows", "last 3 windows")
    assert verdict.ahead_of_article.low > 0.2
    scores = {score.rule: score for score in kind.scores}
    assert scores["last 3 windows"].suppressed_share == pytest.approx(0.94, abs=TOLERANCE)


def test_hysteresis_finds_more_and_changes_its_mind_less(steps: RecordedSteps) -> None:
    for plan in (contiguous(8, 64, 8), stacked(steps.counts[700:1300], 8)):
        scores = {score.rule: score for score in kind_of(steps, plan, "rank heat").scores}
        held, plain = scores["hysteresis"], scores["last 3 windows"]
        assert held.recall > plain.recall + 0.05
        assert held.f1 > plain.f1
        assert held.onsets_per_minute < plain.onsets_per_minute / 3


def test_figures_of_ranks_of_layers(steps: RecordedSteps) -> None:
    kind = kind_of(steps, contiguous(8, 64, 8), "rank of a layer")
    assert (kind.units, kind.threshold, round(kind.hot, 3)) == (64, 1.2, 0.028)
    row = next(score for score in kind.scores if score.rule == "last 3 windows")
    assert [round(value, 3) for value in (row.fires, row.precision)] == [0.027, 0.474]
    assert [round(value, 2) for value in (row.recall, row.f1)] == [0.45, 0.46]
    seen = {name: round(value, 2) for name, value in kind.correlation.items()}
    assert seen == {"last window": 0.54, "last 3 windows": 0.65, "moving average": 0.65, "trend": 0.32}
