"""Scores, threshold, scored steps and verdict of hot-spot rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from easybalance_sim.arrays import BoolArray, FloatArray
from easybalance_sim.errors import UsageError
from easybalance_sim.simulate.sensing import judging
from easybalance_sim.simulate.sensing.detectors import ARTICLE
from easybalance_sim.simulate.sensing.judging import DetectorRequest, judge_detectors, scored_steps
from easybalance_sim.simulate.sensing.series import Series
from easybalance_sim.simulate.sensing.tally import Looked, Tally
from easybalance_sim.simulate.sensing.verdict import judge
from easybalance_sim.simulate.steps.placements import contiguous
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from tests.staggering_steps import steps_of

ONE_NODE = np.zeros(4, np.int64)


@dataclass(frozen=True)
class Told:
    """A rule that says what it was told; at: bool[S, U]."""

    name: str
    at: BoolArray
    says: str = "told"

    def fires(self, series: Series) -> BoolArray:
        """The same whatever the loads."""
        return self.at.copy()


def looked(steps: int, ahead: int = 1) -> Looked:
    """All steps that have a next one."""
    return Looked(window=1, ahead=ahead, threshold=1.2, first=0, end=steps - ahead, tau_steps=2.0)


def turning(steps: int, period: int, *, hot: int = 12) -> RecordedSteps:
    """One layer, 8 experts on 4 ranks, 40 tokens a step; rank after rank gets `hot` more for `period` steps."""
    ids = []
    for step in range(steps):
        rank = step // period % 4
        ids += [2 * rank, 2 * rank + 1] * (hot // 2) + [token % 8 for token in range(40)]
    return steps_of(np.array(ids)[:, None, None], [40 + hot] * steps, 8)


def test_scores_by_hand() -> None:
    loads: FloatArray = np.array([[1.0, 1.0], [3.0, 1.0], [3.0, 1.0], [1.0, 1.0], [1.0, 3.0]])
    article = np.array([[1, 1], [1, 0], [0, 0], [1, 0], [0, 0]], np.bool_)
    better = np.array([[1, 0], [1, 0], [0, 0], [0, 0], [0, 1]], np.bool_)
    tally = Tally([Told("article", article), Told("better", better)], looked(5))
    tally.add(Series(loads))
    first, second = tally.scores(step_s=0.5)
    # Hot next: (0, 0), (1, 0), (3, 1) of 8 pairs; the last step has no next one.
    assert tally.truth_share == 3 / 8
    assert (first.fires, first.precision, first.recall, first.false_fires) == (0.5, 0.5, 2 / 3, 2)
    assert (second.fires, second.precision, second.recall, second.false_fires) == (0.25, 1.0, 2 / 3, 0)
    assert (second.suppressed, second.suppressed_share, second.added) == (2, 1.0, 0)
    assert second.f1 == pytest.approx(0.8)
    # Three onsets of two units in four steps of half a second; a single one of the other rule.
    assert first.onsets_per_minute == pytest.approx(3 * 60 / (2 * 2.0))
    assert second.onsets_per_minute == pytest.approx(1 * 60 / (2 * 2.0))
    # At its two firings the better rule saw shares 1 and 1.5, of which 1.5 and 1.5 came.
    assert second.kept == pytest.approx((0.5 + 0.5) / (0.0 + 0.5))


def test_a_rule_that_never_fires_has_no_excess_to_keep() -> None:
    silent = Told("article", np.zeros((5, 2), np.bool_))
    tally = Tally([silent], looked(5))
    tally.add(Series(np.ones((5, 2))))
    (score,) = tally.scores(step_s=1.0)
    assert (score.fires, score.precision, score.recall, score.f1) == (0, 0, 0, 0)
    assert score.to_dict()["kept"] is None


def test_loads_without_noise_are_told_by_the_shorter_window() -> None:
    steps = turning(800, 100)
    (kind,) = judge_detectors(steps, contiguous(1, 8, 4), ONE_NODE, DetectorRequest(kinds=("rank heat",))).kinds
    scores = {score.rule: score for score in kind.scores}
    # Hot for 100 steps: called after some 27, which is right until 40 before the end, and held for 9 more.
    assert scores["last 3 windows"].precision == pytest.approx((100 - 27 - 28) / (100 - 27 + 9), abs=0.03)
    assert scores["last window"].f1 > scores["last 3 windows"].f1
    assert scores["last window"].kept > scores["last 3 windows"].kept
    assert scores["growing counts"].recall < 0.2
    assert kind.verdict.best in ("last window", "trend")


@pytest.mark.parametrize(("hot", "threshold"), [(2, 1.1), (12, 1.5), (4, 1.2), (0, 1.02)])
def test_a_threshold_that_tests_the_rules(hot: int, threshold: float) -> None:
    # 10 tokens of a rank and `hot` more: 12 / 10.5, 22 / 13 and 14 / 11 of the mean; always one of four ranks.
    steps = turning(400, 100, hot=hot)
    (kind,) = judge_detectors(steps, contiguous(1, 8, 4), ONE_NODE, DetectorRequest(kinds=("rank heat",))).kinds
    assert kind.threshold == threshold


def test_a_threshold_that_is_asked_for_is_taken() -> None:
    asked = DetectorRequest(kinds=("rank heat",), threshold=1.37)
    (kind,) = judge_detectors(turning(300, 60), contiguous(1, 8, 4), ONE_NODE, asked).kinds
    assert kind.threshold == 1.37
    assert {score.says for score in kind.scores} >= {"last 3 windows over 1.37 of the mean"}


def test_nothing_that_stays_hot_is_said() -> None:
    asked = DetectorRequest(threshold=4.5)
    found = judge_detectors(turning(300, 60), contiguous(1, 8, 4), ONE_NODE, asked)
    assert {kind.verdict.text for kind in found.kinds} == {"nothing stays hot, so there is nothing to find"}
    assert {kind.verdict.best for kind in found.kinds} == {""}


def test_too_short_to_tell_is_said() -> None:
    found = judge_detectors(turning(200, 60), contiguous(1, 8, 4), ONE_NODE, DetectorRequest(kinds=("rank heat",)))
    verdict = found.kinds[0].verdict
    assert (verdict.best, verdict.blocks) == ("", 2)
    assert verdict.text.startswith("too short to tell: 2 stretches")


def test_steps_that_can_be_scored_have_a_past_and_a_future() -> None:
    steps = turning(300, 60)
    assert scored_steps(steps, past=36, ahead=40, first=None, end=None) == (35, 260)
    assert scored_steps(steps, past=36, ahead=40, first=10, end=1000) == (35, 260)
    assert scored_steps(steps, past=36, ahead=40, first=50, end=100) == (50, 100)
    with pytest.raises(UsageError, match="300 steps are too few to look 200 back and 120 ahead"):
        scored_steps(steps, past=200, ahead=120, first=None, end=None)


def test_quiet_ends_are_left_out() -> None:
    lengths = [1] * 20 + [100] * 60 + [1] * 20
    steps = steps_of(np.zeros((sum(lengths), 1, 1), np.int64), lengths, 4)
    # Of the 5 steps after 75..79 one has 100 tokens, 5 % of the mean; of the 5 before 20 as well.
    assert scored_steps(steps, past=5, ahead=5, first=None, end=None) == (20, 79)
    assert scored_steps(steps, past=5, ahead=5, first=0, end=100) == (4, 95)


def test_a_slow_rank_is_hot_with_as_many_tokens() -> None:
    steps, asked = turning(300, 60, hot=0), DetectorRequest(kinds=("rank heat", "expert"), threshold=1.2)
    alike = judge_detectors(steps, contiguous(1, 8, 4), ONE_NODE, asked).kinds
    slow = judge_detectors(steps, contiguous(1, 8, 4), ONE_NODE, asked, speed=np.array([1.0, 1.0, 1.0, 0.5])).kinds
    # Twice the time of the others, thus 8/5 of the mean: one of four ranks is hot all the time; experts are as before.
    assert [kind.hot for kind in alike] == [0.0, 0.0]
    assert [kind.hot for kind in slow] == [0.25, 0.0]


def test_nodes_need_several_of_them() -> None:
    steps = turning(300, 60)
    one = judge_detectors(steps, contiguous(1, 8, 4), ONE_NODE)
    two = judge_detectors(steps, contiguous(1, 8, 4), np.array([0, 0, 1, 1]))
    assert [kind.name for kind in one.kinds] == ["rank of a layer", "rank heat", "expert"]
    assert [(kind.name, kind.units) for kind in two.kinds] == [
        ("rank of a layer", 4),
        ("rank heat", 4),
        ("node heat", 2),
        ("expert", 8),
    ]


def test_of_many_experts_some_layers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.tile(np.arange(8), 4 * 200).reshape(200 * 8, 4, 1)
    steps = steps_of(ids, [8] * 200, 8)
    monkeypatch.setattr(judging, "MOST_CELLS", 200 * 2 * 8)
    (kind,) = judge_detectors(steps, contiguous(4, 8, 4), ONE_NODE, DetectorRequest(kinds=("expert",))).kinds
    assert (kind.units, kind.note) == (2 * 8, "experts of one of 2 layers")


def test_windows_follow_the_length_of_a_step() -> None:
    slow = replace(turning(300, 60), step_s=0.1)
    found = judge_detectors(slow, contiguous(1, 8, 4), ONE_NODE)
    assert (found.window, found.ahead, found.first) == (3, 10, 8)
    slower = replace(slow, step_s=2.0)
    assert judge_detectors(slower, contiguous(1, 8, 4), ONE_NODE).window == 1


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown kind of unit 'gpu'"):
        judge_detectors(turning(300, 60), contiguous(1, 8, 4), ONE_NODE, DetectorRequest(kinds=("gpu",)))


def test_a_report_is_json_and_progress_counts_series() -> None:
    done: list[int] = []
    found = judge_detectors(turning(500, 60), contiguous(1, 8, 4), ONE_NODE, advance=done.append)
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert sum(done) == 3
    assert document["kinds"]["rank heat"]["rules"][0]["rule"] == ARTICLE
    assert len(document["kinds"]["rank heat"]["rules"]) == 9
    assert document["window_steps"] == 12


def test_a_verdict_is_redrawn_alike_and_sure_of_what_is_always_right() -> None:
    truth = np.arange(200) % 10 < 3
    loads = np.ones((201, 2))
    loads[1:, 0] += truth
    right: BoolArray = np.zeros((201, 2), np.bool_)
    right[:200, 0] = truth
    wrong = right.copy()
    wrong[:, 1] = True
    tally = Tally([Told(ARTICLE, wrong), Told("right", right)], looked(201))
    tally.add(Series(loads))
    verdict = judge(tally, block_steps=20, draws=100, seed=3)
    assert (verdict.best, verdict.tied, verdict.blocks) == ("right", (), 10)
    assert verdict.halves == ("right", "right")
    assert (verdict.intervals["right"].low, verdict.intervals["right"].high) == (1.0, 1.0)
    assert verdict.always_f1 == pytest.approx(2 * 0.15 / 1.15)
    assert verdict.ahead_of_article.low > 0.3
    assert verdict == judge(tally, block_steps=20, draws=100, seed=3)


def test_two_rules_that_are_alike_are_not_told_apart() -> None:
    truth = np.arange(200) % 10 < 3
    loads = np.ones((201, 2))
    loads[1:, 0] += truth
    right: BoolArray = np.zeros((201, 2), np.bool_)
    right[:200, 0] = truth
    tally = Tally([Told(ARTICLE, right), Told("other", right)], looked(201))
    tally.add(Series(loads))
    verdict = judge(tally, block_steps=20, draws=100, seed=3)
    assert (verdict.best, verdict.tied) == (ARTICLE, ("other",))
    assert verdict.text == f"{ARTICLE}: F1 1.00 (1.00 to 1.00), not told from other, best in both halves"
