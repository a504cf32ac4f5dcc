from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.cost.memory import USABLE_HBM_FRAC, staging_bytes
from easybalance_sim.errors import PlanError, ProfileError, UsageError
from easybalance_sim.plan.migration import moving_slots
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, document
from easybalance_sim.simulate.rollout.facts import BY_LAYER, IN_PLACE, WHOLE, Before, Facts, Widths, before, facts
from easybalance_sim.simulate.rollout.facts import widths_of as widths
from tests.plan_documents import LAYER_IDS, example_document, example_plan, example_trace

H200 = load_profile("h200")
BIG = Widths(expert_bytes=44_050_000, moe_layers=2)


def plan_of(rows: list[list[int]], ranks: int = 2, parent: PlanDocument | None = None, **more: Any) -> PlanDocument:
    """A document around a placement on `ranks` ranks of equal size, every two of them a node."""
    slots = len(rows[0]) // ranks
    plan = replace(example_plan(), expert_of_slot=np.array(rows), slots_per_rank=np.full(ranks, slots))
    return document(
        plan,
        layer_ids=LAYER_IDS,
        topology=uniform(ranks, 2, slots),
        trace=example_trace(),
        dispatch="even",
        evidence={},
        verdict={},
        migration={},
        parent=parent,
        **more,
    )


def facts_of(new: PlanDocument, old: PlanDocument | None = None, known: Widths = BIG) -> Facts:
    return facts(new, before(new, old), H200, known)


def test_what_ranks_fetch_from_an_engines_own_placement() -> None:
    found = facts_of(example_document())
    assert found.arrivals.tolist() == [[1, 2], [1, 1]]
    assert (found.per_rank.tolist(), found.loads) == ([2, 3], (True, True))


def test_ranks_that_keep_their_experts_load_nothing() -> None:
    new = plan_of([[1, 0, 3, 2, 2, 0], [0, 1, 2, 3, 2, 1]])
    assert facts_of(new, plan_of([[0, 1, 3, 3, 2, 0], [2, 0, 1, 1, 3, 2]])).loads == (False, False)
    assert facts_of(new, plan_of([[0, 1, 2, 3, 2, 0], [2, 0, 1, 1, 3, 2]])).loads == (True, False)


def test_the_staging_of_one_layer_is_what_the_planner_says() -> None:
    new, shape = example_document(), replace(load_shape("mixtral-8x7b"), layers=LAYER_IDS)
    held = before(new, None).held
    found = facts_of(new, known=Widths(expert_bytes=shape.expert_bytes, moe_layers=2))
    plan = new.plan()
    expected = staging_bytes(moving_slots(plan, plan, held), plan.slots_per_rank, shape)
    assert found.way(BY_LAYER).staging_bytes == expected == 2 * shape.expert_bytes


def test_memory_and_time_of_the_three_ways() -> None:
    found = facts_of(example_document())
    size, usable = BIG.expert_bytes, int(USABLE_HBM_FRAC * H200.hbm_bytes)
    whole, layer, in_place = (found.way(name) for name in (WHOLE, BY_LAYER, IN_PLACE))
    assert (whole.staging_bytes, layer.staging_bytes, in_place.staging_bytes) == (3 * size, 2 * size, 0)
    assert [way.left_bytes for way in (whole, layer, in_place)] == [usable - (6 + n) * size for n in (3, 2, 0)]
    assert [way.publications for way in (whole, layer, in_place)] == [1, 2, 1]
    seconds = 3 * size / H200.migration.nvlink_bytes_per_s
    assert whole.load_s == layer.load_s == in_place.load_s == in_place.pause_s == pytest.approx(seconds)
    assert whole.pause_s == pytest.approx(2 * 3 * size / H200.hbm_bytes_per_s)
    assert layer.pause_s == pytest.approx(2 * 2 * size / H200.hbm_bytes_per_s)


@pytest.mark.parametrize(
    ("slots", "best", "fits"), [(9, WHOLE, 3), (8, BY_LAYER, 2), (6, IN_PLACE, 1), (5, IN_PLACE, 0)]
)
def test_the_memory_decides_the_way(slots: int, best: str, fits: int) -> None:
    """The GPU holds `slots` experts of each kind: six slots in two layers, and staging for 3, 2 or 0 of them."""
    new = example_document()
    small = msgspec.structs.replace(new.topology, hbm_bytes=int(slots * BIG.expert_bytes / USABLE_HBM_FRAC) + 2)
    found = facts_of(msgspec.structs.replace(new, topology=small))
    assert found.best() == best and [way.fits for way in found.ways].count(True) == fits


def test_the_larger_of_both_plans_takes_memory() -> None:
    new = plan_of([[0, 1, 2, 3], [0, 1, 2, 3]])
    old = plan_of([[0, 1, 2, 2, 3, 0], [0, 1, 2, 2, 3, 0]])
    assert facts_of(new, old).way(IN_PLACE).left_bytes == int(USABLE_HBM_FRAC * H200.hbm_bytes) - 6 * BIG.expert_bytes


def test_without_widths_experts_are_counted_all_the_same() -> None:
    found = facts_of(example_document(), known=Widths(expert_bytes=0, moe_layers=2))
    assert found.per_rank.tolist() == [2, 3] and found.best() == WHOLE
    for way in found.ways:
        assert (way.staging_bytes, way.left_bytes, way.fits, way.load_s, way.pause_s) == (None,) * 5
    content = found.to_dict()
    assert (content["expert_bytes"], content["bytes_per_rank"], content["experts"]) == (None, None, 5)


def test_the_report_adds_up() -> None:
    content = facts_of(example_document()).to_dict()
    assert content["bytes_per_rank"] == [2 * BIG.expert_bytes, 3 * BIG.expert_bytes]
    assert (content["ranks"], content["ranks_that_load"], content["cross_node_experts"]) == (2, 2, 0)
    assert list(content["ways"]) == [WHOLE, BY_LAYER, IN_PLACE]


def test_experts_that_come_from_another_node_are_counted() -> None:
    old = plan_of([[0, 0, 1, 1, 2, 2, 3, 3]] * 2, ranks=4)
    new = plan_of([[0, 1, 1, 0, 2, 3, 3, 0]] * 2, ranks=4)
    found = facts_of(new, old)
    assert found.per_rank.tolist() == [2, 2, 2, 2] and found.cross_node == 2


def test_after_a_loss_of_ranks_survivors_hold_what_they_held() -> None:
    old = plan_of([[0, 1, 2, 3, 0, 2], [0, 1, 2, 3, 0, 2]], ranks=3)
    new = plan_of([[0, 1, 2, 3], [0, 1, 2, 3]], parent=old, parent_ranks=np.array([0, 2]))
    assert facts_of(new, old).arrivals.tolist() == [[0, 1], [0, 1]]
    with pytest.raises(PlanError, match="3 ranks, PLAN has 2"):
        before(msgspec.structs.replace(new, parent_fingerprint="ab"), old)


def test_a_rank_that_comes_back_loads_all_of_its_experts() -> None:
    whole = plan_of([[0, 1, 2, 3, 0, 2], [0, 1, 2, 3, 0, 2]], ranks=3)
    left = plan_of([[0, 1, 2, 3], [0, 1, 2, 3]], parent=whole, parent_ranks=np.array([0, 2]))
    found = before(whole, left)
    assert found.slots.tolist() == [2, 0, 2]
    assert facts_of(whole, left).arrivals.tolist() == [[0, 2, 1], [0, 2, 1]]


def test_plans_that_do_not_fit_are_refused() -> None:
    new = example_document(parent=example_document())
    with pytest.raises(UsageError, match=r"--current: the plan replaces \w{12}, generation 1 — give that plan's file"):
        before(new, None)
    other = msgspec.structs.replace(new, layers=new.layers[:1])
    with pytest.raises(PlanError, match="--current: layers or experts are not those of PLAN"):
        before(new, other)


def test_an_engine_with_fewer_experts_than_ranks_has_one_on_each() -> None:
    plan = Plan(
        expert_of_slot=np.array([[0, 1, 2, 0, 1]]), slots_per_rank=np.ones(5, np.int64), experts=3, policy="contiguous"
    )
    new = msgspec.structs.replace(
        plan_of([[0, 1, 2, 3]] * 2),
        experts=3,
        topology=msgspec.structs.replace(plan_of([[0, 1, 2, 3]] * 2).topology, ranks=5),
        layers=plan_of([[0, 1, 2, 3]] * 2).layers[:1],
    )
    start: Before = before(new, None)
    assert np.array_equal(start.held[0].argmax(axis=1), plan.expert_of_slot[0])
    assert start.slots.tolist() == [1] * 5


@pytest.mark.parametrize(
    ("model", "evidence", "name", "expected"),
    [
        ("", {"expert_bytes": 123, "assumed": False}, "unknown", Widths(expert_bytes=123, moe_layers=2)),
        ("", {"expert_bytes": 123, "assumed": True}, "unknown", Widths(expert_bytes=0, moe_layers=2)),
        ("", None, "unknown", Widths(expert_bytes=0, moe_layers=2)),
        ("", {"expert_bytes": 123, "assumed": False}, "mixtral-8x7b", Widths(expert_bytes=123, moe_layers=32)),
        ("", None, "mixtral-8x7b", Widths(expert_bytes=load_shape("mixtral-8x7b").expert_bytes, moe_layers=32)),
        (
            "mixtral-8x7b",
            {"expert_bytes": 123, "assumed": False},
            "unknown",
            Widths(expert_bytes=load_shape("mixtral-8x7b").expert_bytes, moe_layers=32),
        ),
        ("", None, "deepseek-v3", Widths(expert_bytes=0, moe_layers=2)),
    ],
)
def test_where_the_widths_come_from(model: str, evidence: dict[str, Any] | None, name: str, expected: Widths) -> None:
    judged = {} if evidence is None else {"model": evidence}
    plan = msgspec.structs.replace(example_document(), experts=8, model=name, evidence=judged)
    assert widths(model, plan) == expected


def test_a_model_with_other_experts_is_refused() -> None:
    with pytest.raises(UsageError, match="--model: model deepseek-v3 has 256 experts, the plan 4"):
        widths("deepseek-v3", example_document())
    with pytest.raises(ProfileError, match="unknown model"):
        widths("no-such-model", example_document())
