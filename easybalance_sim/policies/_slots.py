"""How many slots each rank uses when every expert has one replica."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import IntArray, frozen
from easybalance_sim.policies import NotApplicable, Problem


def zero_redundancy_slots(problem: Problem) -> IntArray:
    """int64[R] used slots that sum to E, as even as the slots of the ranks allow; lower ranks take what is left over.

    With room everywhere a rank gets E//R or E//R + 1. `NotApplicable` with fewer experts than ranks.
    """
    experts, slots = problem.experts, problem.topology.slots_per_rank
    if experts < len(slots):
        raise NotApplicable(f"{experts} experts with one replica each leave some of {len(slots)} ranks empty")
    level = 1
    while level < experts and np.minimum(slots, level + 1).sum() <= experts:
        level += 1
    used = np.minimum(slots, level)
    used[np.flatnonzero(slots > level)[: experts - used.sum()]] += 1
    return frozen(used, np.int64)
