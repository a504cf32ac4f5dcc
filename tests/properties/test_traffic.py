"""Traffic between nodes: what holds for every placement, sample and topology."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.load.sampling import TokenSample
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, Problem, eplb, traffic_search
from easybalance_sim.policies._node_relabel import relabelled
from easybalance_sim.policies._traffic import copies_per_token, flow_of, slot_share

LAYERS = 2


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to 4 nodes of equal ranks, sources known for some tokens."""
    nodes, per_node = draw(st.integers(2, 4)), draw(st.integers(1, 2))
    ranks, experts = nodes * per_node, draw(st.integers(6, 12))
    slots = draw(st.integers(-(-experts // ranks), experts))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    top_k, tokens = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    ids = np.argsort(rng.random((tokens, LAYERS, experts)), axis=2)[:, :, :top_k].astype(np.uint8)
    source = np.where(rng.random(tokens) < draw(st.sampled_from([0.0, 0.5, 1.0])), rng.integers(0, nodes, tokens), -1)
    windows = rng.poisson(rng.lognormal(3, 1, (LAYERS, experts)), (9, LAYERS, experts)) + 1
    return Problem(
        forecast=windows.mean(axis=0), windows=windows, topology=uniform(ranks, per_node, slots),
        sample=TokenSample(experts=ids, source_node=source.astype(np.int16)), effort=Effort(proposals=300),
        per_assignment=draw(st.booleans()), seed=draw(st.integers(0, 9)),
    )  # fmt: skip


def copies(plan: Plan, problem: Problem, topology: Topology | None = None) -> float:
    return copies_per_token(plan, flow_of(problem), (topology or problem.topology).node_of_rank)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_no_token_sends_more_than_it_has(problem: Problem) -> None:
    plan = eplb.place(problem)
    assert problem.sample is not None
    top_k, nodes = problem.sample.experts.shape[2], problem.topology.nodes
    distinct = copies(plan, replace(problem, per_assignment=False))
    assert 0 <= distinct <= min(top_k, nodes - 1) + 1e-6
    assert 0 <= copies(plan, replace(problem, per_assignment=True)) <= top_k + 1e-9


@settings(max_examples=40, deadline=None)
@given(problems())
def test_every_token_is_served_once(problem: Problem) -> None:
    plan = eplb.place(problem)
    share = slot_share(plan, flow_of(problem), problem.topology.node_of_rank)
    for layer in range(LAYERS):
        np.testing.assert_allclose(
            np.bincount(plan.expert_of_slot[layer], weights=share[layer], minlength=problem.experts), 1
        )


@settings(max_examples=30, deadline=None)
@given(problems())
def test_relabelling_never_costs(problem: Problem) -> None:
    plan = eplb.place(problem)
    assert copies(relabelled(plan, flow_of(problem), problem.topology), problem) <= copies(plan, problem) + 1e-9


@settings(max_examples=25, deadline=None)
@given(problems(), st.sampled_from([0.0, 1.0, 20.0]))
def test_searched_plans_are_sound_and_repeat(problem: Problem, price: float) -> None:
    point, again = (traffic_search.options(problem, [price]).traded(1.0) for _ in range(2))
    assert (point.plan.expert_of_slot == again.plan.expert_of_slot).all()
    held = np.sort(point.plan.expert_of_slot.reshape(LAYERS, point.plan.ranks, -1), axis=2)
    assert (np.diff(held, axis=2) > 0).all()
    assert abs(point.crossings - copies(point.plan, problem)) < 1e-4


@settings(max_examples=10, deadline=None)
@given(problems())
def test_a_front_falls(problem: Problem) -> None:
    plans = traffic_search.front(problem)
    sent = [copies(plan, problem) for plan in plans]
    prices = [float(plan.policy.removeprefix("traffic_search@")) for plan in plans]
    assert 1 <= len(plans) <= 6
    assert all(more > less for more, less in pairwise(sent)), sent
    assert all(less < more for less, more in pairwise(prices))


@settings(max_examples=20, deadline=None)
@given(problems())
def test_a_node_that_holds_everything_sends_nothing(problem: Problem) -> None:
    topology = uniform(problem.topology.ranks, problem.topology.ranks // problem.topology.nodes, problem.experts)
    everywhere = Plan(
        expert_of_slot=np.tile(np.arange(problem.experts), (LAYERS, topology.ranks)),
        slots_per_rank=topology.slots_per_rank,
        experts=problem.experts,
        policy="all",
    )
    assert copies(everywhere, problem) == 0
