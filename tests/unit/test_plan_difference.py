from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.errors import PlanError
from easybalance_sim.plan import canonical
from easybalance_sim.plan.difference import Difference, difference
from easybalance_sim.plan.migration_steps import Limits
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, document
from tests.plan_documents import LAYER_IDS, example_document, example_plan, example_trace

H200 = load_profile("h200")


def made(
    rows: list[list[int]], slots: list[int], parent: PlanDocument | None = None, evidence: Any = None, **more: Any
) -> PlanDocument:
    """A plan file of the example model with these slots."""
    plan = Plan(expert_of_slot=np.array(rows), slots_per_rank=np.array(slots), experts=4, policy="hand")
    return document(
        plan, layer_ids=LAYER_IDS, topology=uniform(len(slots), 2, max(slots)), trace=example_trace(), dispatch="even",
        evidence=evidence or {}, verdict={"status": "accepted"}, migration={}, model="example-moe", parent=parent,
        **more,
    )  # fmt: skip


def compared(old: PlanDocument, new: PlanDocument, expert_bytes: int = 1_000_000) -> Difference:
    return difference(old, new, H200, expert_bytes=expert_bytes, limits=Limits())


def test_a_plan_is_like_itself() -> None:
    found = compared(example_document(), example_document())
    assert found.is_none and found.to_dict(steps=True)["steps"] == []


def test_moves_are_counted_by_path_and_by_absolute_layer() -> None:
    rows = example_plan().expert_of_slot.tolist()
    rows[1] = [0, 2, 3, 3, 2, 0]
    rows[1][3] = 1
    found = compared(example_document(), made(rows, [3, 3]))
    assert found.by_path() == {"nvlink": 2} and found.by_layer() == {LAYER_IDS[1]: 2}
    seconds = 2 * 1e6 / H200.migration.nvlink_bytes_per_s / 2
    content = found.to_dict(steps=False)
    assert content["seconds"] == pytest.approx(seconds) and content["bytes"] == 2_000_000
    assert content["replicas_changed"] == 0 and "steps" not in content


def test_experts_that_change_places_on_their_rank_count_as_local() -> None:
    rows = example_plan().expert_of_slot.tolist()
    rows[0] = [1, 0, 2, 3, 0, 1]
    found = compared(example_document(), made(rows, [3, 3]))
    assert (found.migration.moves, found.migration.local, found.is_none) == (0, 2, False)


def test_bytes_are_not_made_up() -> None:
    found = compared(example_document(), made([[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 2, 0]], [3, 3]), expert_bytes=0)
    content = found.to_dict(steps=True)
    assert (content["bytes"], content["seconds"], content["expert_bytes"]) == (None, None, None)
    assert content["moves"] == 1 and content["steps"][0]["seconds"] is None


def test_a_rollout_file_names_every_move_and_is_sealed() -> None:
    new = made([[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 2, 0]], [3, 3])
    content = json.loads(compared(example_document(), new).rollout_text())
    assert content["steps"][0]["moves"] == [
        {
            "layer": 3, "expert": 2, "from_rank": 0, "to_rank": 1, "slot_of_rank": 2, "replaces": 1, "path": "nvlink",
        }
    ]  # fmt: skip
    assert content["new"]["fingerprint"] == new.fingerprint() and content["format"] == "ebsim.rollout"
    fingerprint = content.pop("fingerprint")
    assert canonical.digest(content) == fingerprint


def test_ranks_are_lost_and_come_back() -> None:
    whole = made([[0, 1, 2, 3, 0, 2]] * 2, [2, 2, 2])
    left = made([[0, 1, 3, 0, 2, 1]] * 2, [3, 3], whole, parent_ranks=np.array([0, 2]))
    away = compared(whole, left)
    assert away.by_path()["outside"] == 2, "nobody is left who holds expert 3"
    back = compared(left, whole)
    assert {move.rank for step in back.migration.steps for move in step.moves} == {1}
    assert back.migration.moves == 4 and sum(len(step.drops) for step in back.migration.steps) == 4

    assert (away.old_ranks, back.old_ranks) == ([0, 2], [0, None, 1])


def test_ranks_that_could_be_renamed_are_told() -> None:
    old = made([[0, 1, 2, 3, 0, 2]] * 2, [3, 3])
    swapped = [[3, 0, 2, 0, 1, 2]] * 2
    found = compared(old, made(swapped, [3, 3]))
    assert (found.migration.moves, found.renamed_moves) == (4, 0)
    assert compared(old, made(swapped, [3, 3], old)).renamed_moves is None


def judged(rows: list[list[int]], old: PlanDocument, baseline: list[float], plan: list[float]) -> PlanDocument:
    sides = {"baseline": baseline, "plan": plan}
    evidence = {side: {"rank_imbalance_by_layer": {"mean": mean}} for side, mean in sides.items()}
    return made(rows, [3, 3], old, evidence=evidence)


def test_layers_that_gain_most_change_first() -> None:
    old, rows = example_document(), [[0, 1, 2, 3, 0, 2], [0, 2, 1, 3, 1, 0]]
    first = judged(rows, old, [1.5, 1.9], [1.4, 1.3])
    found = compared(old, first)
    assert found.by_gain and [step.moves[0].layer for step in found.migration.steps] == [1, 0]
    assert found.to_dict(steps=False)["layer_order"] == "gain"


def test_layers_go_by_number_without_figures_for_each() -> None:
    old = example_document()
    assert not compared(old, judged([[0, 1, 2, 3, 0, 2]] * 2, old, [1.0, 1.0], [1.0])).by_gain
    assert not compared(old, made([[0, 1, 2, 3, 0, 2]] * 2, [3, 3])).by_gain


@pytest.mark.parametrize(
    ("new", "line"),
    [
        (made([[0, 1, 2, 3, 0, 1]] * 2, [2, 2, 2]), "for 2 and 3 ranks, and neither was made from the other"),
        (msgspec.structs.replace(example_document(), experts=5), "of different models: 2 layers × 4 experts"),
    ],
)  # fmt: skip
def test_plans_that_cannot_be_compared(new: PlanDocument, line: str) -> None:
    with pytest.raises(PlanError, match=line):
        compared(example_document(), new)
