"""What is said of placements, the same on the terminal and in Python: shape, faults, what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from easybalance_sim.report.words import many

if TYPE_CHECKING:
    from easybalance_sim.plan.difference import Difference
    from easybalance_sim.plan.planfile import PlanDocument


def shape(plan: PlanDocument) -> str:
    """`8 layers × 64 experts in 80 slots on 8 ranks`."""
    slots = many(sum(plan.plan_slots_per_rank), "slot")
    return (
        f"{many(len(plan.layers), 'layer')} × {plan.experts} experts in {slots} on {many(plan.topology.ranks, 'rank')}"
    )


def faults(errors: int, warnings: int) -> str:
    """`2 errors, 1 warning`; `CLEAN` where nothing was found."""
    counts = [many(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count]
    return ", ".join(counts) if counts else "CLEAN"


def change(found: Difference) -> str:
    """How many slots of all layers need an expert that their rank does not hold, and in how many layers."""
    if found.is_none:
        return "the same experts in the same slots"
    slots = len(found.new.layers) * sum(found.new.plan_slots_per_rank)
    layers = many(len(found.by_layer()), "layer")
    return f"{found.migration.moves:,} of {slots:,} slots need an expert from elsewhere, in {layers}"
