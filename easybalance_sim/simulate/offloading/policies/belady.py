"""What is needed again last goes first: no cache that loads on demand has fewer misses (Belady 1966).

To hold against caches that come full from the past, it may choose freely what is there when the judged steps begin.
With equal sizes of all experts and experts that may be streamed past, keeping the C nearest next uses is optimal:
between two uses an item is kept or not, at most C at a time, and of such intervals those that end first are best.
"""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import FloatArray, sealed
from easybalance_sim.simulate.offloading.policies import History, Priorities
from easybalance_sim.simulate.offloading.uses import Uses

BOUND = True


def priorities(history: History) -> Priorities:
    """Minus the position of the item's next use."""
    later, first = next_uses(history.judged)
    return Priorities(judged=sealed(-later), first=sealed(-first))


def next_uses(uses: Uses) -> tuple[FloatArray, FloatArray]:
    """float64[A] position of the next use of each use's item, float64[L·E] of an item's first use; inf = none."""
    order = np.argsort(uses.item, kind="stable")
    item, position = uses.item[order], uses.position[order].astype(np.float64)
    again = item[1:] == item[:-1]
    later, first = np.full(len(item), np.inf), np.full(uses.items, np.inf)
    later[order[:-1][again]] = position[1:][again]
    opening = np.append(True, ~again)[: len(item)]
    first[item[opening]] = position[opening]
    return later, first
