"""The planner against exact optima of small placements."""

from __future__ import annotations

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.cost.slots import SlotCost
from easybalance_sim.plan.lint import ERROR, lint
from easybalance_sim.policies import Effort
from tests.milp_oracle import (
    HARD_INSTANCES,
    HARD_WINDOW_INSTANCES,
    INSTANCES,
    WINDOW_INSTANCES,
    Instance,
    NotClosedError,
    imbalance_of,
    optimum_of_windows,
)
from tests.window_problems import balance, chance_windows, problem_of, rank_loads, topic_windows

REPEATED = 240
"""Windows are pulled to their mean by 4 / (T + 4), so the few of an instance are shown many times."""
HARD = [pytest.param(case, marks=pytest.mark.slow) for case in (*HARD_INSTANCES, *HARD_WINDOW_INSTANCES)]


@pytest.mark.parametrize("case", [*INSTANCES, *WINDOW_INSTANCES, *HARD], ids=str)
def test_the_planner_is_within_one_per_cent_of_the_optimum(case: Instance) -> None:
    weight = np.atleast_2d(case.weight)
    try:
        least = optimum_of_windows(weight, case.ranks, case.slots_per_rank).value
    except NotClosedError:
        pytest.skip("HiGHS did not close it in time")
    windows = np.tile(weight.astype(np.int64)[:, None], (REPEATED // len(weight), 1, 1))
    topology = uniform(case.ranks, case.ranks, case.slots_per_rank)
    plan = policies.make("window_search", problem_of(windows, topology))
    assert imbalance_of(weight, plan.expert_of_slot[0], plan.slots_per_rank) <= 1.01 * least


@pytest.mark.parametrize("slot_cost", [None, SlotCost(token_s=1e-8, active_s=3e-6)], ids=["tokens", "seconds"])
@pytest.mark.parametrize("budget_s", [0.0, 1e-9, 0.2])
def test_a_small_cluster_gets_a_legal_plan_no_worse_than_greedy(budget_s: float, slot_cost: SlotCost | None) -> None:
    windows = topic_windows(0, 40, layers=2, experts=8)
    windows[5] = 0
    cluster = Topology(
        node_of_rank=np.zeros(3, np.int64), slots_per_rank=np.array([5, 3, 4]), speed=np.array([1.0, 0.5, 1.0])
    )
    effort = Effort(budget_s=budget_s, proposals=5000)
    problem = problem_of(windows, cluster, effort=effort, slot_cost=slot_cost, window_steps=16.0)
    plan, greedy = policies.make("window_search", problem), policies.make("eplb", problem)
    assert [finding for finding in lint(plan, cluster) if finding.level == ERROR] == []
    if slot_cost is None:
        worst = [(rank_loads(made, windows) / cluster.speed).max(axis=2).mean() for made in (plan, greedy)]
        assert worst[0] <= worst[1] * 1.001 and (budget_s == 1e-9 or worst[0] < 0.99 * worst[1])


def test_windows_that_differ_by_chance_settle_their_average() -> None:
    """Small clusters only: there greedy can miss what is best for the average."""
    windows = chance_windows(0, 60, layers=3, experts=6, tokens=100_000)
    problem = problem_of(windows, uniform(3, 3, 3))
    plan, greedy = policies.make("window_search", problem), policies.make("eplb", problem)
    mean = windows.mean(axis=0, keepdims=True)
    assert balance(plan, mean)[0] < balance(greedy, mean)[0] - 0.005
