"""A rollout file alone leads from the old plan to the new one, slot by slot."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from easybalance_sim.cluster.hardware import load_profile
from easybalance_sim.plan.difference import difference
from easybalance_sim.plan.migration_steps import Limits, slots_by_rank
from easybalance_sim.plan.planfile import PlanDocument
from tests.plan_documents import placed_document
from tests.random_placements import random_plan, random_slots
from tests.unit.test_plan_difference import compared, made

H200 = load_profile("h200")
LAYER_IDS = (3, 5, 6)

Slots = dict[tuple[int, int, int], int]
"""(layer id, rank, slot of the rank) -> expert"""


def slots_of(document: PlanDocument) -> Slots:
    return {
        (layer, rank, place): int(expert)
        for rank, experts in enumerate(slots_by_rank(document.plan()))
        for layer, row in zip(document.layer_ids, experts, strict=True)
        for place, expert in enumerate(row)
    }


def carried_out(step: dict[str, Any], slots: Slots) -> Slots:
    """The slots after a step, as the documentation of the file says it is to be read."""
    left = {(one["layer"], one["rank"], one["slot_of_rank"]): one["expert"] for one in step["drops"]}
    for move in step["moves"]:
        if move["from_rank"] is not None:
            held = [e for (layer, rank, _), e in slots.items() if (layer, rank) == (move["layer"], move["from_rank"])]
            assert move["expert"] in held
    gone = [(one["layer"], one["to_rank"], one["replaces"]) for one in step["moves"] if one["replaces"] is not None]
    gone += [(layer, rank, expert) for (layer, rank, _), expert in left.items()]
    after = {at: expert for at, expert in slots.items() if (*at[:2], expert) not in gone}
    assert len(after) == len(slots) - len(gone)
    for move in step["moves"]:
        at = move["layer"], move["to_rank"], move["slot_of_rank"]
        assert at not in after, "the slot is free"
        after[at] = move["expert"]
    written = {}
    for one in step["local_moves"]:
        assert after[one["layer"], one["rank"], one["from_slot"]] == one["expert"]
        written[one["layer"], one["rank"], one["to_slot"]] = one["expert"]
    for one in step["local_moves"]:
        after.pop((one["layer"], one["rank"], one["from_slot"]), None)
    return {**after, **written}


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    ranks=st.integers(1, 6),
    experts=st.integers(2, 14),
    grows=st.booleans(),
    staging=st.integers(0, 3),
)
def test_a_rollout_file_ends_at_the_new_plan(seed: int, ranks: int, experts: int, grows: bool, staging: int) -> None:
    rng = np.random.default_rng(seed)
    had = random_slots(rng, ranks, experts)
    old = placed_document(random_plan(rng, had, experts, 3), LAYER_IDS)
    new = placed_document(random_plan(rng, random_slots(rng, ranks, experts) if grows else had, experts, 3), LAYER_IDS)
    found = difference(old, new, H200, expert_bytes=1000, limits=Limits(staging_slots=staging))
    content = json.loads(found.rollout_text())
    assert content["old_ranks"] == list(range(ranks))
    slots = slots_of(old)
    for step in content["steps"]:
        slots = carried_out(step, slots)
        for layer in LAYER_IDS:
            assert {expert for at, expert in slots.items() if at[0] == layer} == set(range(experts))
    assert slots == slots_of(new)
    assert content["local_moves"] == sum(len(step["local_moves"]) for step in content["steps"])


def test_a_rollout_file_leads_to_the_survivors_and_back() -> None:
    whole = made([[0, 1, 2, 3, 0, 2], [0, 1, 2, 0, 3, 1]], [2, 2, 2])
    left = made([[0, 1, 3, 0, 2, 1], [1, 0, 2, 3, 1, 2]], [3, 3], whole, parent_ranks=np.array([0, 2]))
    for old, new, names in ((whole, left, [0, 2]), (left, whole, [0, None, 1])):
        content = json.loads(compared(old, new).rollout_text())
        assert content["old_ranks"] == names
        at = {was: now for now, was in enumerate(names)}
        slots = {(layer, at[was], place): e for (layer, was, place), e in slots_of(old).items() if was in at}
        for step in content["steps"]:
            slots = carried_out(step, slots)
        assert slots == slots_of(new)
