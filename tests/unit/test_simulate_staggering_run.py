"""The staggering what-if as a whole, on small traffic of two topics that take turns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.staggering.moves import fetched, ways
from easybalance_sim.simulate.staggering.relabel import relabelled
from easybalance_sim.simulate.staggering.run import STAGES, Request, Staggering, stagger, staggered
from easybalance_sim.simulate.steps.recorded import rank_loads
from tests.staggering_steps import chance_plan, chance_steps

STEPS = chance_steps(1, steps=48)
PLAN = chance_plan(1, slots=(2, 2, 2, 2))


def found(**changed: Any) -> Staggering:
    request: dict[str, Any] = {
        "plan": PLAN,
        "past": STEPS.between(0, 24),
        "judged": STEPS.between(24, 48),
        "topology": uniform(4, 2, 2),
        "window": 4,
        "expert_bytes": 100.0,
        "token_bytes": 10.0,
    }
    return stagger(Request(**(request | changed)))


def test_a_barrier_per_layer_gains_exactly_nothing_and_the_rest_gains() -> None:
    outcome = found()
    assert outcome.barrier_gain == 0.0
    assert len({row.barrier for row in outcome.rows if row.labels != "random"}) == 1
    before, after = outcome.row("as is"), outcome.row("windows")
    assert after.heat_mean < before.heat_mean
    assert after.unbound < before.unbound
    assert after.unbound <= after.one_ahead <= after.barrier


def test_only_the_oracle_has_seen_the_judged_steps() -> None:
    outcome = found()
    names = [row.labels for row in outcome.rows]
    assert names == ["as is", "worst", "random", "mean", "pairs", "windows", "oracle"]
    assert [row.labels for row in outcome.rows if row.fitted_on_judged] == ["oracle"]
    assert outcome.row("oracle").heat_mean <= outcome.row("windows").heat_mean
    assert outcome.row("random").draws == 16


def test_inside_nodes_no_more_crosses_the_network() -> None:
    outcome = found(inside_nodes=True)
    assert {row.cross_node for row in outcome.rows} == {outcome.row("as is").cross_node}
    assert len({row.cross_node for row in found().rows}) > 1
    assert all(row.cross_node_moves == 0 for row in outcome.moves)


def test_what_is_not_known_is_left_out() -> None:
    outcome = found(topology=uniform(4, 4, 2), expert_bytes=0.0)
    assert all(row.memory is None and row.network is None and row.cross_node is None for row in outcome.rows)
    counted, measured = found(token_bytes=0.0).row("as is"), found().row("as is")
    assert counted.memory is None
    assert counted.cross_node is not None
    assert measured.cross_node == tuple(10 * crossing for crossing in counted.cross_node)
    assert counted.network == pytest.approx(measured.network)


def test_the_plan_is_the_one_that_a_later_run_would_make() -> None:
    outcome = found()
    plan = staggered(PLAN, STEPS.between(0, 24), uniform(4, 2, 2), window=4)
    np.testing.assert_array_equal(plan.expert_of_slot, outcome.plan.expert_of_slot)
    assert plan.policy == "mine+staggered"
    judged = STEPS.between(24, 48).counts
    np.testing.assert_allclose(np.sort(rank_loads(judged, plan)), np.sort(rank_loads(judged, PLAN)))


def test_moves_are_those_between_the_plans() -> None:
    in_force = chance_plan(2, slots=(2, 2, 2, 2))
    outcome = found(in_force=in_force)
    by_name = {row.labels: row for row in outcome.moves}
    assert by_name["as is"].moves == moving_slots(in_force, PLAN).sum()
    assert by_name["as is"].heat_mean == pytest.approx(outcome.row("as is").heat_mean)
    assert by_name["staggered, all layers"].moves == moving_slots(in_force, outcome.plan).sum()
    assert by_name["staggered, all layers"].heat_mean == pytest.approx(outcome.row("windows").heat_mean)
    assert by_name["fewest moves"].moves == min(row.moves for row in outcome.moves)


def test_without_a_plan_in_force_the_labels_alone_cost_moves() -> None:
    by_name = {row.labels: row for row in found().moves}
    assert by_name["as is"].moves == by_name["staggered, layers that move anyway"].moves == 0
    assert by_name["staggered, layers that move anyway"].layers == 0
    assert by_name["staggered, all layers"].moves > 0


def test_only_layers_that_move_anyway_are_relabelled() -> None:
    in_force = relabelled(PLAN, np.array([[1, 0, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]))
    by_name = {row.labels: row for row in found(in_force=in_force).moves}
    assert by_name["staggered, layers that move anyway"].layers <= 1
    assert by_name["staggered, all layers"].layers > 1


def test_fetches_of_a_share_are_what_the_rank_lacks() -> None:
    in_force = chance_plan(3, slots=(2, 2, 2, 2))
    labels = np.array([[1, 2, 3, 0], [0, 1, 2, 3], [3, 2, 1, 0]])
    chosen = np.take_along_axis(fetched(PLAN, in_force), labels[:, :, None], axis=2)
    assert chosen.sum() == moving_slots(in_force, relabelled(PLAN, labels)).sum()


def test_two_replicas_on_one_rank_are_fetched_once() -> None:
    def plan(*slots: int) -> Plan:
        return Plan(expert_of_slot=np.array([slots]), slots_per_rank=np.array([2, 2, 2]), experts=3, policy="made")

    in_force, twice = plan(0, 1, 1, 2, 2, 1), plan(1, 2, 0, 0, 2, 1)
    # Row: who takes it, column: whose. Rank 1 lacks expert 0, of which rank 1 of the plan holds two.
    assert fetched(twice, in_force)[0].tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 0]]
    best, windows = np.array([[0, 1, 2]]), np.ones((2, 1, 3))
    (as_is, *_) = ways(twice, in_force, windows, best, uniform(3, 1, 2), inside_nodes=False, seed=0)
    assert (as_is.moves, as_is.cross_node_moves, as_is.layers) == (2, 2, 1)


def test_a_slow_rank_takes_its_time() -> None:
    slow = Topology(
        node_of_rank=np.zeros(4, np.int64), slots_per_rank=np.full(4, 2), speed=np.array([1.0, 1.0, 1.0, 0.5])
    )
    outcome, even = found(topology=slow), found(topology=uniform(4, 4, 2))
    assert outcome.row("as is").barrier > even.row("as is").barrier
    assert outcome.barrier_gain == 0.0
    np.testing.assert_array_equal(outcome.plan.expert_of_slot[:, 6:], PLAN.expert_of_slot[:, 6:])


def test_the_report_is_plain_json() -> None:
    outcome = found()
    assert json.loads(json.dumps(outcome.to_dict(), allow_nan=False)) == outcome.to_dict()
    assert outcome.window_s == pytest.approx(4 * 0.025)


def test_progress_is_told_in_stages() -> None:
    told: list[int] = []
    request = Request(plan=PLAN, past=STEPS, judged=STEPS, topology=uniform(4, 4, 2), draws=1)
    stagger(request, told.append)
    assert sum(told) == STAGES


def test_steps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match=r"past steps have \(layers, experts\) = \(3, 8\), the plan \(2, 8\)"):
        found(plan=chance_plan(1, layers=2, slots=(2, 2, 2, 2)))
    with pytest.raises(UsageError, match="1 judged steps"):
        found(judged=STEPS.between(0, 1))
