"""Placements that send little between nodes: what they count, when they refuse, what they keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from easybalance_sim import policies
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.load.sampling import TokenSample
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, eplb, traffic_search
from easybalance_sim.policies._node_relabel import relabelled
from easybalance_sim.policies._traffic import Flow, copies_per_token, flow_of, slot_share, tails, window_imbalance
from tests.traffic_problems import EXPERTS, LAYERS, TOP_K, grouped_problem

QUICK = Effort(proposals=4000)


def two_node_plan(ranks: list[list[int]], experts: int) -> Plan:
    return Plan(
        expert_of_slot=np.array([[expert for held in ranks for expert in held]], np.int32),
        slots_per_rank=np.array([len(held) for held in ranks]),
        experts=experts,
        policy="test",
    )


def one_layer(
    tokens: list[list[int]], source: list[int], experts: int, per_assignment: bool = False
) -> policies.Problem:
    ids = np.array(tokens, np.uint8)[:, None]
    counts = np.bincount(ids.ravel(), minlength=experts)[None]
    sample = TokenSample(experts=ids, source_node=np.array(source, np.int16))
    return policies.Problem(
        forecast=counts.astype(float), windows=counts[None], topology=uniform(2, 1, 3), sample=sample,
        per_assignment=per_assignment,
    )  # fmt: skip


def test_copies_by_hand() -> None:
    plan = two_node_plan([[0, 1, 2], [0, 3, 2]], 4)
    problem = one_layer([[0, 1], [0, 3], [1, 3], [0, 2]], [0, 0, 1, 1], 4)
    flow = flow_of(problem)
    assert copies_per_token(plan, flow, problem.topology.node_of_rank) == pytest.approx(2 / 4)
    nowhere = one_layer([[0, 1], [0, 3], [1, 3], [0, 2]], [-1] * 4, 4)
    assert copies_per_token(plan, flow_of(nowhere), problem.topology.node_of_rank) == pytest.approx((0.5 + 0.5 + 1) / 4)


def test_messages_count_every_assignment_that_leaves() -> None:
    plan = two_node_plan([[0, 1, 2], [0, 3, 2]], 4)
    problem = one_layer([[0, 1], [0, 3], [1, 3], [0, 2]], [-1] * 4, 4, per_assignment=True)
    # Experts 1 and 3 are chosen 4 of 8 times and half of the sources lack them: a quarter of two assignments.
    assert copies_per_token(plan, flow_of(problem), problem.topology.node_of_rank) == pytest.approx(0.5)


def test_a_node_with_a_replica_serves_itself() -> None:
    plan = two_node_plan([[0, 1, 2], [0, 3, 2]], 4)
    problem = one_layer([[0, 1], [0, 3], [1, 3], [0, 2]], [-1] * 4, 4)
    assert slot_share(plan, flow_of(problem), problem.topology.node_of_rank).tolist() == [[0.5, 1, 0.5, 0.5, 1, 0.5]]


def test_every_token_is_served_once() -> None:
    problem = grouped_problem()
    plan = eplb.place(problem)
    share = slot_share(plan, flow_of(problem), problem.topology.node_of_rank)
    for layer in range(LAYERS):
        served = np.bincount(plan.expert_of_slot[layer], weights=share[layer], minlength=EXPERTS)
        np.testing.assert_allclose(served, 1)


@pytest.mark.parametrize("nodes", [2, 3])
def test_relabelling_never_costs_and_keeps_what_ranks_hold(nodes: int) -> None:
    problem = grouped_problem(nodes=nodes)
    flow, node, plan = flow_of(problem), problem.topology.node_of_rank, eplb.place(problem)
    better = relabelled(plan, flow, problem.topology)
    for before, after in zip(plan.expert_of_slot, better.expert_of_slot, strict=True):
        sides = [sorted(map(tuple, side.reshape(plan.ranks, -1).tolist())) for side in (before, after)]
        assert sides[0] == sides[1]
    assert copies_per_token(better, flow, node) < copies_per_token(plan, flow, node)


def test_descent_comes_close_to_trying_all(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = grouped_problem(nodes=3)
    flow, node, plan = flow_of(problem), problem.topology.node_of_rank, eplb.place(problem)
    exact = copies_per_token(relabelled(plan, flow, problem.topology), flow, node)
    monkeypatch.setattr("easybalance_sim.policies._node_relabel.MOST_WAYS", 2)
    descended = copies_per_token(relabelled(plan, flow, problem.topology), flow, node)
    assert exact - 1e-9 <= descended < copies_per_token(plan, flow, node)


@pytest.mark.parametrize("ranks", [17, 320])
def test_many_ranks_are_refused_before_any_way_is_tried(ranks: int) -> None:
    problem = grouped_problem(topology=uniform(ranks, 8, 2))
    with pytest.raises(NotApplicable, match=f"{ranks} ranks, relabelling is for up to 16"):
        policies.make("eplb_relabelled", problem)


def test_uneven_ranks_are_not_relabelled_but_searched() -> None:
    topology = Topology(node_of_rank=[0, 0, 1, 1], slots_per_rank=[5, 6, 6, 5], speed=np.ones(4))  # type: ignore[arg-type]
    problem = grouped_problem(topology=topology, effort=QUICK)
    with pytest.raises(NotApplicable, match="differ in slots or speed"):
        policies.make("eplb_relabelled", problem)
    plan = policies.make("traffic_search", problem)
    assert plan.slots_per_rank.tolist() == [5, 6, 6, 5]


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("per_assignment", [False, True])
def test_search_beats_relabelling_at_no_longer_tail(nodes: int, per_assignment: bool) -> None:
    problem = grouped_problem(nodes=nodes, per_assignment=per_assignment, effort=QUICK)
    flow, node = flow_of(problem), problem.topology.node_of_rank
    base, named = eplb.place(problem), policies.make("eplb_relabelled", problem)
    plan = policies.make("traffic_search", problem)
    assert plan.policy == "traffic_search"
    assert named.policy == "eplb_relabelled"
    copies = [copies_per_token(each, flow, node) for each in (plan, named, base)]
    assert copies[0] <= copies[1] <= copies[2]
    assert per_assignment or copies[0] < copies[1]
    found = [tails(each, problem.windows, flow, problem.topology).mean() for each in (plan, base)]
    assert found[0] <= found[1]
    held = plan.expert_of_slot.reshape(LAYERS, plan.ranks, -1)
    assert (np.diff(np.sort(held, axis=2), axis=2) > 0).all()


def test_a_higher_price_sends_less() -> None:
    found = traffic_search.options(grouped_problem(effort=QUICK), [0.0, 1.0, 30.0])
    balanced, between, thrifty = found.crossings
    assert (balanced > between).all()
    assert (balanced > thrifty).all()
    assert found.tails[0].mean() < found.tails[2].mean()


def test_layers_pick_on_their_own() -> None:
    start = two_node_plan([[0, 1], [2, 3]], 4)
    start = replace(start, expert_of_slot=np.repeat(start.expert_of_slot, 2, axis=0))
    slots = np.array([[[0, 1, 2, 3]] * 2, [[0, 2, 1, 3]] * 2])
    found = traffic_search.Options(
        start=start, slots=slots, crossings=np.array([[0.9, 0.5], [0.4, 0.4]]), tails=np.array([[1.1, 1.1], [1.2, 1.4]])
    )
    point = found.traded(1.0)
    assert point.plan.expert_of_slot.tolist() == [[0, 2, 1, 3], [0, 1, 2, 3]]
    assert point.tail == pytest.approx(1.15)
    assert point.crossings == pytest.approx(0.45)
    assert found.traded(0.0).tail == pytest.approx(1.1)
    assert found.traded(10.0).crossings == pytest.approx(0.4)


def test_a_front_goes_from_balanced_to_few_crossings_and_holds_the_plan_of_place() -> None:
    problem = grouped_problem(effort=QUICK)
    flow, node, plans = flow_of(problem), problem.topology.node_of_rank, traffic_search.front(problem)
    copies = [copies_per_token(plan, flow, node) for plan in plans]
    assert copies == sorted(copies, reverse=True)
    assert len(plans) > 1
    prices = [float(plan.policy.removeprefix("traffic_search@")) for plan in plans]
    assert prices == sorted(prices)
    chosen = traffic_search.place(problem).expert_of_slot
    assert any((plan.expert_of_slot == chosen).all() for plan in plans)


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_rising_price_gathers_groups_on_nodes(nodes: int) -> None:
    """Without room to spare a token stays home only when its group's experts share a node."""
    topology = uniform(2 * nodes, 2, -(-EXPERTS // (2 * nodes)))
    found = traffic_search.options(grouped_problem(nodes=nodes, topology=topology, effort=QUICK), [0.0, 3.0, 30.0])
    here = topology.node_of_rank[found.start.rank_of_slot]
    gathered = []
    for option in found.slots:
        largest = [np.bincount(here[slots % nodes == g]).max() for slots in option for g in range(nodes)]
        gathered.append(sum(largest) / option.size)
    assert gathered[0] < gathered[1] < gathered[2]
    assert gathered[2] > 0.9


def test_tails_are_of_spans_of_windows() -> None:
    plan = two_node_plan([[0], [1]], 2)
    share = np.full((1, 2, 2), 0.5)
    flow = Flow(
        share=share, message=share, ids=np.zeros((1, 0, 1), np.uint8), source=np.zeros(0, np.int16), weight=share[0, 0]
    )
    windows = np.array([[[1, 1]]] * 8 + [[[1, 3]]] * 8)
    ratio = window_imbalance(plan, windows, flow, uniform(2, 1, 1))
    assert ratio[:, 0].tolist() == [1.0] * 8 + [1.5] * 8
    assert tails(plan, windows, flow, uniform(2, 1, 1)).tolist() == [1.25]


def test_same_seed_same_plan() -> None:
    plans = [traffic_search.place(grouped_problem(effort=QUICK, seed=seed)).expert_of_slot for seed in (3, 3, 4)]
    assert (plans[0] == plans[1]).all()
    assert (plans[0] != plans[2]).any()


def test_a_budget_shortens_the_search() -> None:
    problem = grouped_problem(effort=Effort(budget_s=0.01))
    assert traffic_search.options(problem, [1.0]).slots.shape[:2] == (1, LAYERS)


def test_sources_that_are_known_pull_their_experts() -> None:
    problem = grouped_problem()
    assert problem.sample is not None
    group = np.bincount(problem.sample.experts[:, 0, 0] % 2, minlength=2)
    assert group.min() > 0
    source = (problem.sample.experts[:, 0, 0] % 2).astype(np.int16)
    known = replace(problem, sample=replace(problem.sample, source_node=source), effort=QUICK)
    share = flow_of(known).share[0]
    assert (share[0::2, 0] > 0.7).all()
    assert (share[1::2, 1] > 0.7).all()
    crossings = traffic_search.options(known, [30.0]).crossings
    assert crossings.mean() < traffic_search.options(replace(problem, effort=QUICK), [30.0]).crossings.mean()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"topology": uniform(4, 4, 5)}, "one node"),
        ({"sample": None}, "no tokens"),
        ({"windows": np.zeros((3, LAYERS, EXPERTS))}, "3 windows"),
    ],
)
def test_refusals(change: dict[str, object], why: str) -> None:
    problem = replace(grouped_problem(effort=QUICK), **change)  # type: ignore[arg-type]
    with pytest.raises(NotApplicable, match=why):
        policies.make("traffic_search", problem)


def test_a_sample_must_have_the_layers_of_the_problem() -> None:
    sample = TokenSample(experts=np.zeros((2, LAYERS + 1, TOP_K), np.uint8), source_node=np.zeros(2, np.int16))
    with pytest.raises(Exception, match=r"shape 2×3×3"):
        grouped_problem(sample=sample)
