"""A plan made from the judged traffic: as good as the plan at least, and with its slots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.floor import floor_plan
from easybalance_sim.planning.session import Session, Settings, open_session
from easybalance_sim.policies import Effort, contiguous, eplb
from tests.listeners import Heard
from tests.skewed_traces import skewed_trace
from tests.window_problems import balance, chance_windows, problem_of, topic_windows

QUICK = Effort(proposals=20_000)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = skewed_trace(tmp_path_factory.mktemp("floor") / "t.parquet", steps=64)
    return open_session(Settings(traces=(path,), ranks=8, slots_per_rank=5), Heard())


def judged(tokens: np.typing.NDArray[np.int64]) -> LoadWindows:
    count = len(tokens)
    return LoadWindows(tokens=tokens, window=np.arange(count), steps=np.full(count, 16, np.int32), steps_per_window=16)


def test_a_search_on_the_judged_windows_is_the_floor(session: Session) -> None:
    windows = topic_windows(3, 40)
    plan = eplb.place(problem_of(windows))
    found = floor_plan(plan, judged(windows), session, QUICK)
    assert found.policy == "window_search" and balance(found, windows)[0] < balance(plan, windows)[0]
    assert found.slots_per_rank.tolist() == plan.slots_per_rank.tolist()


def test_it_has_the_slots_of_the_plan_not_of_the_cluster(session: Session) -> None:
    windows = topic_windows(3, 40)
    without = contiguous.place(problem_of(windows, replace(session.topology, slots_per_rank=np.full(8, 4))))
    assert floor_plan(without, judged(windows), session, QUICK).slots_per_rank.tolist() == [4] * 8


def test_where_windows_differ_by_chance_the_average_known_in_advance_is_the_floor(session: Session) -> None:
    windows = chance_windows(0, 40)
    found = floor_plan(contiguous.place(problem_of(windows)), judged(windows), session, QUICK)
    assert found.policy == "eplb"


def test_a_plan_that_nothing_beats_is_its_own_floor(session: Session, tmp_path: Path) -> None:
    """Every expert on every rank cannot be improved."""
    everywhere = Plan(
        expert_of_slot=np.tile(np.arange(32), (3, 8)), slots_per_rank=np.full(8, 32), experts=32, policy="everywhere"
    )
    assert floor_plan(everywhere, judged(topic_windows(3, 40)), session, QUICK).policy == "everywhere"
