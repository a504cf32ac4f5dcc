"""What no placement can beat."""

from __future__ import annotations

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import FloatArray, frozen


def lower_bound(weight: FloatArray, ranks: int, slots: int) -> FloatArray:
    """float64[L] rank imbalance (max / mean load over ranks) that no placement of these loads can go below.

    weight: float64[L, E] loads ≥ 0 · slots: P ≥ E over all ranks. The hottest rank carries at least the mean and at
    least T = min over replica counts of max_e weight_e / count_e, however the load of an expert is split over its
    replicas: with count_e replicas, one of them gets weight_e / count_e or more. A layer without load has bound 1.
    """
    replicate = kernels.load().replicate
    loads = frozen(weight, np.float64)
    bound = np.ones(len(loads))
    for layer, row in enumerate(loads):
        mean = row.sum() / ranks
        if mean > 0:
            bound[layer] = max(1.0, float((row / replicate(row, slots, ranks)).max()) / mean)
    return bound
