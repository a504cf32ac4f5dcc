"""How many slots each rank uses when every expert has one replica."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import IntArray, frozen
from easybalance_sim.cluster.topology import Topology


def zero_redundancy_slots(experts: int, topology: Topology) -> IntArray:
    """int64[R] used slots that sum to E, as even as the slots of the ranks allow; lower ranks take what is left over.

    With room everywhere a rank gets E//R or E//R + 1. The topology must hold E experts.
    """
    level = 0
    while int(np.minimum(topology.slots_per_rank, level + 1).sum()) <= experts and level < experts:
        level += 1
    used = np.minimum(topology.slots_per_rank, level)
    taller = np.flatnonzero(topology.slots_per_rank > level)[: experts - int(used.sum())]
    used[taller] += 1
    return frozen(used, np.int64)
