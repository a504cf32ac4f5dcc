"""Least recently used goes first; of the experts of one step those that fewest tokens chose."""

from __future__ import annotations

from easybalance_sim.arrays import FloatArray, sealed
from easybalance_sim.simulate.offloading.policies import History, Priorities
from easybalance_sim.simulate.offloading.uses import Uses


def priorities(history: History) -> Priorities:
    """Position of the use and a fraction by its tokens."""
    return Priorities(past=_recency(history.past, 0), judged=_recency(history.judged, history.past.positions))


def _recency(uses: Uses, first: int) -> FloatArray:
    return sealed(first + uses.position + uses.tokens / (uses.tokens.max() + 1.0))
