"""What an engine cannot hold is refused with the reason, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from easybalance_sim.errors import PlanError
from easybalance_sim.exports.deployment import deployment_for
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.placement import Limits, placement
from easybalance_sim.plan.plan import Plan
from tests.plan_documents import example_document, placed_document

ANY = Limits(engine="it")


def _plan(rows: Sequence[Sequence[int]], slots_per_rank: Sequence[int], experts: int) -> Plan:
    return Plan(
        expert_of_slot=np.array(rows), slots_per_rank=np.array(slots_per_rank), experts=experts, policy="by hand"
    )


def test_rows_by_rising_layer_with_mtp_rows_apart() -> None:
    plan = _plan([[2, 1, 0, 2], [0, 1, 2, 0], [1, 0, 2, 1]], [2, 2], 3)
    placed = placement(placed_document(plan, (9, 4, 7)), Deployment(mtp_layers=(9,)), ANY)
    assert placed.rows == {4: (0, 1, 2, 0), 7: (1, 0, 2, 1)}
    assert list(placed.rows) == [4, 7]
    assert placed.mtp_rows == {9: (2, 1, 0, 2)}
    assert placed.filler == [0, 1, 2, 0]
    assert (placed.ranks, placed.slots_per_rank, placed.slots, placed.redundant) == (2, 2, 4, 1)


@pytest.mark.parametrize(
    ("rows", "slots_per_rank", "message"),
    [
        ([[0, 1, 2, 0, 1]], [3, 2], "ranks hold 2 to 3 slots, it wants the same number on every rank"),
        (
            [[0, 1, 2, 2]],
            [2, 2],
            "layer 5, slot 3: expert 2 is already on rank 1 (slot 2): it would serve wrong experts",
        ),
        (
            [[1, 1, 0, 0, 2, 2]],
            [2, 2, 2],
            "slot 1: expert 1 is already on rank 0 (slot 0) (2 more such faults): it would",
        ),
    ],
)
def test_plans_that_no_engine_holds(rows: list[list[int]], slots_per_rank: list[int], message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        placement(placed_document(_plan(rows, slots_per_rank, 3), (5,)), Deployment(), ANY)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(engine="it", slots=3), "4 slots per layer, it takes 3 at most"),
        (Limits(engine="it", redundant=0), "1 redundant slots per layer, it takes 0 at most"),
        (Limits(engine="it", experts=2), "3 experts, it takes 2 at most"),
    ],
)
def test_limits_of_an_engine(limits: Limits, message: str) -> None:
    document = placed_document(_plan([[0, 1, 2, 0]], [2, 2], 3), (0,))
    with pytest.raises(PlanError, match=message):
        placement(document, Deployment(), limits)
    placement(document, Deployment(), Limits(engine="it", slots=4, redundant=1, experts=3))


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (Deployment(experts=5), "the plan is for 4 experts, the model has 5"),
        (Deployment(moe_layers=(2, 3, 4, 5)), "the plan lacks 2 of the model's 4 MoE layers, first layer 2"),
        (Deployment(moe_layers=(3,)), "layer 4 is no MoE layer of the model"),
    ],
)
def test_a_plan_of_another_model(known: Deployment, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        placement(example_document(), known, ANY)


def test_what_cannot_be_checked_is_said() -> None:
    (note,) = placement(example_document(), Deployment(), ANY).notes
    assert note == "the model is not known: that the plan has all of its MoE layers was not checked (--model)"
    assert placement(example_document(), Deployment(moe_layers=(3, 4)), ANY).notes == ()


def test_the_model_is_the_one_that_was_said_or_that_the_plan_names() -> None:
    plan = _plan([list(range(256))] * 58, [32] * 8, 256)
    named = deployment_for(placed_document(plan, range(3, 61), model="deepseek-ai/DeepSeek-V3-0324"))
    assert named == deployment_for(placed_document(plan, range(3, 61)), "deepseek-v3")
    assert named == Deployment(
        ranks=8,
        experts=256,
        hidden_layers=61,
        moe_layers=tuple(range(3, 61)),
        mtp_layers=(61,),
        redundant=0,
        model="deepseek-v3",
        model_type="other",
        groups=8,
    )
    assert deployment_for(example_document()) == Deployment(ranks=2, redundant=2)
    assert deployment_for(example_document(), hidden_layers=7).hidden_layers == 7
