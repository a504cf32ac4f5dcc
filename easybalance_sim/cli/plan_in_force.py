"""The plan that was in force while a recording was made, as the map from its slots to experts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from easybalance_sim.trace.slot_map import SlotMap


def slot_map(path: Path) -> SlotMap:
    """The map of a plan file of `ebsim`. Raises `PlanError` for any other file."""
    from easybalance_sim.errors import PlanError
    from easybalance_sim.exports.linting import is_plan_file
    from easybalance_sim.plan.planfile import read_plan
    from easybalance_sim.trace.slot_map import SlotMap

    if not is_plan_file(path):
        raise PlanError("not a plan file", where=str(path), fix="make one of the engine's file with `ebsim adopt`")
    document = read_plan(path)
    return SlotMap(
        expert_of_slot=document.plan().expert_of_slot,
        experts=document.experts,
        name=str(path),
        layers=document.layer_ids,
    )
