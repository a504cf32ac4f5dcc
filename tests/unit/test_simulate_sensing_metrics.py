"""What sensors see of steps that can be followed by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.dispatch import prepare
from easybalance_sim.replay.engine import links
from easybalance_sim.simulate.sensing.metrics import (
    METRICS,
    Served,
    clock_of,
    moving,
    saturated_clock,
    step_work,
)
from easybalance_sim.simulate.sensing.summary import Sensing, SensingRequest, sense
from easybalance_sim.simulate.steps.placements import contiguous
from easybalance_sim.simulate.steps.recorded import RecordedSteps
from easybalance_sim.trace.dataset import unheard
from tests.replay_cases import cost_of, small_shape
from tests.staggering_steps import chance_plan, chance_steps, steps_of

COPY_BYTES = 7168 * (1 + 4 / 128) + 16 + 2 * 7168
"""There in FP8 with a header (low latency), back in BF16."""


def served_by(plan: Plan, topology: Topology) -> Served:
    """DeepSeek-V3's widths on H200s."""
    return Served(
        plan=plan,
        dispatch=prepare("even", plan, frozen(topology.node_of_rank, np.int32), 0),
        route=links(topology, "low_latency"),
        cost=cost_of(plan, topology),
        shape=small_shape(plan.layers, plan.experts, 1),
        hbm_bytes_per_s=load_profile("h200").hbm_bytes_per_s,
        recorded_ranks=plan.ranks,
    )


def two_ranks() -> RecordedSteps:
    """Two steps 25 ms apart, one layer, experts 0, 1 on rank 0 and 2, 3 on rank 1; three tokens, then one."""
    ids = np.array([0, 1, 1, 3])[:, None, None]
    return steps_of(ids, [3, 1], 4, source=np.array([0, 0, 1, 0]), ranks=2)


def test_what_each_rank_does_in_a_step() -> None:
    steps, topology = two_ranks(), uniform(2, 1, 2)
    served = served_by(contiguous(1, 4, 2), topology)
    work = step_work(steps, served, unheard)
    assert work.assignments.tolist() == [[3, 0], [0, 1]]
    expert = served.shape.expert_bytes
    row = 2 * (2 * 7168 + 3 * 2048)
    assert work.hbm_bytes.tolist() == [[2 * expert + 3 * row, 0], [0, expert + row]]
    # One token of the first step, and that of the second, cross from one domain of one rank to the other.
    assert work.link_bytes == pytest.approx(np.full((2, 2), COPY_BYTES))
    assert not work.nvlink_bytes.any()
    assert (work.expert_s[0, 1], work.expert_s[1, 0]) == (0, 0)
    assert work.expert_s[0, 0] > work.expert_s[1, 1] > 0


def test_inside_one_domain_nothing_crosses() -> None:
    work = step_work(two_ranks(), served_by(contiguous(1, 4, 2), uniform(2, 2, 2)), unheard)
    assert not work.link_bytes.any()
    assert work.nvlink_bytes == pytest.approx(np.full((2, 2), COPY_BYTES))


def test_the_slowest_rank_takes_as_long_as_the_layer() -> None:
    steps = chance_steps(5, tokens=40)
    plan = chance_plan(5)
    topology = Topology(node_of_rank=np.array([0, 0, 1, 1]), slots_per_rank=plan.slots_per_rank, speed=np.ones(4))
    served = served_by(plan, topology)
    alone = step_work(steps_of(steps.experts[:, :1], [40] * 24, 8), _first_layer(served), unheard)
    whole = step_work(steps, served, unheard)
    assert (whole.expert_s >= alone.expert_s).all()
    assert (alone.expert_s.max(axis=1) <= alone.layer_s).all()
    slow = replace(served, cost=replace(served.cost, speed=frozen(np.array([1.0, 1.0, 1.0, 0.5]))))
    twice = step_work(steps, slow, unheard).expert_s / np.where(whole.expert_s > 0, whole.expert_s, 1)
    assert twice[:, 3] == pytest.approx(np.full(24, 2.0))
    assert twice[:, :3] == pytest.approx(np.ones((24, 3)))


def _first_layer(served: Served) -> Served:
    plan = replace(served.plan, expert_of_slot=served.plan.expert_of_slot[:1])
    return replace(served, plan=plan)


def test_steps_begin_when_recorded_unless_the_one_before_is_late() -> None:
    steps = replace(two_ranks(), step=frozen([3, 6], np.int64))
    short = clock_of(steps, np.array([0.001, 0.001]), 0.05)
    assert short.begin == pytest.approx([0, 0.075])
    assert short.end == pytest.approx([0.025, 0.1])
    assert short.ticks == 2
    long = clock_of(steps, np.array([0.2, 0.1]), 0.05)
    assert long.begin.tolist() == [0, 0.2]
    assert long.end == pytest.approx([0.2, 0.3])
    assert long.ticks == 6


def test_what_a_step_does_is_spread_over_it() -> None:
    steps = replace(two_ranks(), step=frozen([3, 6], np.int64))
    idle_between = clock_of(steps, np.array([0.001, 0.001]), 0.05)
    assert idle_between.rate(np.array([10.0, 4.0])) == pytest.approx([200, 80])
    straddling = saturated_clock(np.array([0.075, 0.125]), 0.05)
    by_rank: FloatArray = np.array([[3.0, 0.0], [5.0, 10.0]])
    assert straddling.rate(by_rank) == pytest.approx(np.array([[40, 0], [40, 40], [40, 80], [40, 80]]))


def test_averages_over_the_last_ticks() -> None:
    values = np.array([[2.0], [4.0], [6.0], [0.0]])
    assert moving(values, 2)[:, 0].tolist() == [2, 3, 5, 3]
    assert moving(values, 9)[:, 0].tolist() == [2, 3, 4, 3]


def seen(steps: RecordedSteps, topology: Topology, request: SensingRequest | None = None) -> Sensing:
    """Under the contiguous placement."""
    plan = contiguous(steps.layers, steps.meta.experts, topology.ranks)
    return sense(steps, served_by(plan, topology), topology.node_of_rank, request)


def hot_first_rank(steps: int) -> RecordedSteps:
    """Rank 0 of 4 gets 7 of 10 tokens of every step."""
    ids = np.tile([0, 1, 0, 1, 0, 1, 0, 2, 4, 6], steps)[:, None, None]
    return steps_of(ids, [10] * steps, 8, source=np.tile(np.arange(10) % 4, steps), ranks=4)


def test_the_hottest_rank_and_node_of_each_metric() -> None:
    found = seen(hot_first_rank(40), uniform(4, 2, 2))
    tokens = found.ranks["expert_tokens_per_s"]
    assert (found.ticks, found.tick_s) == (20, 0.05)
    assert tokens.by_unit == pytest.approx([280, 40, 40, 40])
    assert tokens.hottest == 0
    assert (tokens.mean, tokens.ratio) == pytest.approx((100, 2.8))
    assert found.nodes["expert_tokens_per_s"].by_unit == pytest.approx([160, 40])
    assert found.nodes["expert_tokens_per_s"].ratio == pytest.approx(1.6)
    # Two experts are read where one is on the others: the rank is hotter by tokens than by bytes or seconds.
    assert found.ranks["hbm_frac"].ratio == pytest.approx(2 / 1.25, abs=0.01)
    assert found.ranks["compute_frac"].hottest == 0
    assert 1 < found.ranks["compute_frac"].ratio < 2
    assert found.agreement["hbm_frac"] == 1.0
    assert found.late == 0.0


def test_saturated_steps_follow_each_other() -> None:
    steps, topology = hot_first_rank(400), uniform(4, 2, 2)
    calm, full = seen(steps, topology), seen(steps, topology, SensingRequest(saturated=True, other_s=0.004))
    faster = calm.step_s / (calm.moe_s + 0.004)
    assert faster > 2
    assert full.ranks["hbm_frac"].mean == pytest.approx(faster * calm.ranks["hbm_frac"].mean, rel=0.02)
    assert full.ranks["hbm_frac"].ratio == pytest.approx(calm.ranks["hbm_frac"].ratio)


def test_a_report_is_json_with_series_on_demand() -> None:
    done: list[int] = []
    steps, topology = hot_first_rank(40), uniform(4, 2, 2)
    found = sense(steps, served_by(contiguous(1, 8, 4), topology), topology.node_of_rank, advance=done.append)
    assert sum(done) == 40
    document = json.loads(json.dumps(found.to_dict(series=True), allow_nan=False))
    assert set(document["ranks"]) == set(document["nodes"]) == set(document["series"]) == set(METRICS)
    assert np.array(document["series"]["hbm_frac"]["fast"]).shape == (20, 4)
    assert "series" not in found.to_dict()


def test_windows_must_grow() -> None:
    with pytest.raises(UsageError, match=r"0\.05, 0\.02 and 1 s are no clock"):
        seen(hot_first_rank(40), uniform(4, 2, 2), SensingRequest(fast_s=0.02))
