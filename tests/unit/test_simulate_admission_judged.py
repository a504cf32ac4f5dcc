"""Copies, loads and seconds of a plan with given sources."""

from __future__ import annotations

import json

import numpy as np
import pytest

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.admission.judged import judge, least_remote
from easybalance_sim.simulate.admission.requests import batch_of
from tests.admission_cases import course, steps_of

CLUSTER = uniform(4, 2, 1)
COURSE = course(CLUSTER, window=1)
# One expert per rank; ranks 0 and 1 are node 0.
PLAN = Plan(
    expert_of_slot=np.tile(np.arange(4), (2, 1)), slots_per_rank=np.ones(4, np.int64), experts=4, policy="by hand"
)
STEPS = steps_of([(0, 0), (0, 1), (1, 0)], np.array([[[2, 3]] * 2, [[0, 2]] * 2, [[0, 1]] * 2]), n_experts=4)


def test_copies_by_hand() -> None:
    found = judge(COURSE, PLAN, STEPS, np.array([0, 0, 0], np.int16))
    normal, low = found.crossing["normal"], found.crossing["low_latency"]
    # Token 0 sends to ranks 2 and 3: one copy to node 1, two assignments. Token 1 to ranks 0 and 2. Token 2 stays.
    assert normal.copies_per_token == pytest.approx(2 / 3)
    assert low.copies_per_token == pytest.approx(3 / 3)
    assert low.rank_copies_per_token == pytest.approx(4 / 3)
    for mode, crossing, copies in (("normal", normal, 2), ("low_latency", low, 3)):
        per_copy = COURSE.cost(PLAN, mode).copy_bytes
        assert crossing.bytes_per_step == pytest.approx(copies * 2 * per_copy / 2)
        assert 0 < crossing.layer_us_p50 <= crossing.layer_us_p99
        assert crossing.step_us_p50 == pytest.approx(2 * crossing.layer_us_p50)
    # Loads: 1, 0, 2, 1 in step 0; 1, 1, 0, 0 in step 1.
    assert found.balance.step_mean == 2.0


def test_sources_decide_what_crosses() -> None:
    at_home = judge(COURSE, PLAN, STEPS, np.array([2, 0, 1], np.int16))
    away = judge(COURSE, PLAN, STEPS, np.array([0, 2, 3], np.int16))
    assert at_home.crossing["normal"].copies_per_token == pytest.approx(1 / 3)
    assert away.crossing["normal"].copies_per_token == pytest.approx(3 / 3)
    assert away.balance == at_home.balance


def test_least_remote_by_hand() -> None:
    # Node 0 sends 2, 3, 0, 2, 0, 1: its two slots serve 2 and 0 at best. From node 1, nothing comes.
    batch = batch_of(STEPS, np.array([0, 0, 0], np.int16))
    assert least_remote(batch, 4, CLUSTER) == pytest.approx(2 / 3)
    # With 2 and 3 at node 1 and 0, 2, 0, 1 at node 0, one of 2 and 1 has to go.
    assert least_remote(batch_of(STEPS, np.array([2, 0, 0], np.int16)), 4, CLUSTER) == pytest.approx(1 / 3)
    assert least_remote(batch, 4, uniform(4, 2, 2)) == 0.0


def test_a_part_of_the_steps() -> None:
    found = judge(COURSE, PLAN, STEPS, np.array([0, 0, 2], np.int16), 1, 2, ["low_latency"])
    assert list(found.crossing) == ["low_latency"]
    assert found.crossing["low_latency"].copies_per_token == 2.0
    assert json.loads(json.dumps(found.to_dict()))["balance"]["step_mean"] == 2.0
