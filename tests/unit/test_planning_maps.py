"""The `maps` section: sums of the outcome, points over time, bounds of its size."""

from __future__ import annotations

import json

import numpy as np
import pytest

from easybalance_sim.load.split import HELD_OUT
from easybalance_sim.planning import maps
from easybalance_sim.planning.maps import maps_section, over_time
from easybalance_sim.planning.session import Settings, open_session
from tests.listeners import Heard
from tests.skewed_traces import EXPERTS, LAYERS, RANKS, TOP_K, skewed_counts, skewed_trace
from tests.unit.test_planning_evidence import contiguous, dealt
from tests.unit.test_replay_outcome import outcome


@pytest.mark.parametrize("kind", ["tokens", "counts"])
def test_maps_are_sums_of_all_judged_tokens(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("maps") / "trace.parquet"
    made = skewed_trace(path, steps=128) if kind == "tokens" else skewed_counts(path, 16)
    session = open_session(Settings(traces=(made,), ranks=RANKS, ranks_per_node=2, slots_per_rank=5), Heard())
    traffic = session.traffic("time", 0.5, 0)
    before, after = traffic.replay([contiguous(), dealt()], HELD_OUT, session.bench)
    found = maps_section(session, before, after, traffic.leading)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["layers"], found["rank_speed"]) == (list(LAYERS), [1.0] * RANKS)
    tokens = np.array(found["expert_tokens"])
    assert tokens.shape == (len(LAYERS), EXPERTS)
    for side in ("baseline", "plan"):
        ranks = np.array(found[side]["rank_tokens"])
        assert ranks.shape == (len(LAYERS), RANKS)
        np.testing.assert_allclose(ranks.sum(axis=1), tokens.sum(axis=1), atol=RANKS)
    if kind == "tokens":
        assert tokens.sum() == len(LAYERS) * TOP_K * after.tokens
    assert np.array(found["replicas"]).sum(axis=1).tolist() == [after.plan.slots] * len(LAYERS)
    times = found["over_time"]
    assert times["windows"] == len(times["window"]) == after.windows
    assert np.mean(times["plan"]["mean"]) == pytest.approx(float(after.window_imbalance.mean()), rel=1e-6)
    assert max(times["plan"]["worst"]) == pytest.approx(float(after.window_imbalance.max()), rel=1e-5)


def test_windows_keep_the_numbers_that_they_have_in_the_trace(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = skewed_trace(tmp_path_factory.mktemp("maps") / "trace.parquet", steps=128)
    session = open_session(Settings(traces=(made,), ranks=RANKS), Heard())
    traffic = session.traffic("time", 0.5, 0)
    (after,) = traffic.replay([contiguous()], HELD_OUT, session.bench)
    assert after.window_marks.ids.tolist() == [4, 5, 6, 7]
    assert after.window_marks.steps.tolist() == [16] * 4
    assert (after.window_marks.assignments.sum() / TOP_K) == after.tokens


def test_many_windows_are_joined_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MOST_POINTS", 7)
    one = outcome()
    leading = tuple("code" if window < 150 else "chat" for window in range(300))
    found = over_time(one, one, 2, leading)
    assert (found["windows"], found["windows_per_point"], found["window"]) == (300, 43, [*range(0, 300, 43)])
    assert found["step_tokens"] == [3.5] * 7
    assert found["leading"] == ["code"] * 3 + ["chat"] * 4
    assert found["plan"]["worst"][-1] == 2.0
    joined = np.array(found["plan"]["mean"]) @ np.diff([*found["window"], 300]) / 300
    assert joined == pytest.approx(1.5)


def test_windows_without_traffic_have_no_value() -> None:
    ratios = np.array([[1.5, np.nan], [np.nan, np.nan], [1.0, 2.0]])
    marks = outcome().window_marks
    some = outcome(
        window_imbalance=ratios,
        window_marks=type(marks)(ids=np.arange(3), steps=np.ones(3, np.int64), assignments=np.array([4, 0, 8])),
    )
    found = over_time(some, some, 2, None)
    assert found["plan"] == {"mean": [1.5, None, 1.5], "worst": [1.5, None, 2.0]}
    assert (found["step_tokens"], found["leading"]) == ([2.0, 0.0, 4.0], None)


def test_too_large_maps_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr(maps, "MOST_CELLS", len(LAYERS) * RANKS)
    made = skewed_trace(tmp_path_factory.mktemp("maps") / "trace.parquet", steps=64)
    session = open_session(Settings(traces=(made,), ranks=RANKS), Heard())
    traffic = session.traffic("time", 0.5, 0)
    (one,) = traffic.replay([contiguous()], HELD_OUT, session.bench)
    found = maps_section(session, one, one, traffic.leading)
    assert (found["expert_tokens"], found["replicas"]) == (None, None)
    assert found["plan"]["rank_tokens"] is not None
