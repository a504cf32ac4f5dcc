"""The experts that earlier requests chose most often, for good; all others are streamed past them."""

from __future__ import annotations

from easybalance_sim.arrays import sealed
from easybalance_sim.simulate.offloading.policies import History, Priorities


def priorities(history: History) -> Priorities:
    """How often the item was chosen."""
    return Priorities(judged=sealed(history.frequency[history.judged.item]), first=history.frequency)
