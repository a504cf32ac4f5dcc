"""What holds for every repaired plan, whatever the plan and the ranks that were lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.lint import lint
from easybalance_sim.plan.migration import resident
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.survivors import Survivors, repair, surviving_ranks, survivors, topology_of


@st.composite
def accidents(draw: st.DrawFn) -> tuple[Plan, Survivors, Topology, FloatArray]:
    """A plan on ranks that may have more slots than it fills, and some of them lost; the rest have room for all."""
    experts = draw(st.integers(1, 12))
    used = draw(st.lists(st.integers(1, experts), min_size=2, max_size=7))
    used += [experts] * (sum(used) < experts)
    seed = draw(st.integers(0, 10_000))
    layers = draw(st.integers(1, 3))
    random = np.random.default_rng(seed)
    slots = kernels.load().greedy(frozen(random.gamma(0.5, 1, (layers, experts))), frozen(used, np.int64))
    plan = Plan(expert_of_slot=slots, slots_per_rank=np.array(used), experts=experts, policy="eplb")
    free = draw(st.lists(st.integers(0, 3), min_size=len(used), max_size=len(used)))
    whole = Topology(
        node_of_rank=np.arange(len(used)) // 2,
        slots_per_rank=np.minimum(np.array(used) + free, experts),
        speed=np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(used), max_size=len(used)))),
    )
    lost = draw(st.sets(st.integers(0, len(used) - 1), max_size=len(used) - 1))
    ranks = surviving_ranks(len(used), sorted(lost))
    topology = topology_of(whole, ranks)
    if topology.slots < experts:
        topology = topology_of(whole, ranks, experts)
    load = random.gamma(0.5, 1, (layers, experts)) * draw(st.sampled_from([0.0, 1.0]))
    return plan, survivors(plan, ranks), topology, load


@settings(max_examples=300, deadline=None)
@given(accidents())
def test_a_repaired_plan_is_sound_and_moves_only_what_was_lost(
    case: tuple[Plan, Survivors, Topology, FloatArray],
) -> None:
    _, left, topology, load = case
    plan = repair(left, topology, load)
    assert (plan.replicas >= 1).all()
    assert [finding for finding in lint(plan, topology) if finding.level == "error"] == []
    fetched = (resident(plan) & ~left.held).sum(axis=(1, 2))
    assert fetched.tolist() == left.lost.sum(axis=1).tolist()
    assert plan.slots == max(left.experts, int(left.slots_per_rank.sum()))


@settings(max_examples=100, deadline=None)
@given(accidents())
def test_surviving_slots_stay_unless_a_lost_expert_takes_them(
    case: tuple[Plan, Survivors, Topology, FloatArray],
) -> None:
    _, left, topology, load = case
    plan = repair(left, topology, load)
    first = np.concatenate([[0], np.cumsum(left.slots_per_rank)])
    for rank in range(plan.ranks):
        before = left.expert_of_slot[:, first[rank] : first[rank + 1]]
        after = plan.expert_of_slot[:, plan.slot_start[rank] : plan.slot_start[rank] + before.shape[1]]
        layer, slot = np.nonzero(before != after)
        assert left.lost[layer, after[layer, slot]].all()


@settings(max_examples=60, deadline=None)
@given(accidents())
def test_the_same_accident_has_the_same_repair(case: tuple[Plan, Survivors, Topology, FloatArray]) -> None:
    _, left, topology, load = case
    assert repair(left, topology, load).expert_of_slot.tolist() == repair(left, topology, load).expert_of_slot.tolist()
