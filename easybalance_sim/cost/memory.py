"""Bytes that expert slots take, and what redundant slots cost in KV cache."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import IntArray, frozen
from easybalance_sim.cluster.model_shape import ModelShape

USABLE_HBM_FRAC = 0.9
"""Share of the memory that engines hand to weights and cache (the default of vLLM's gpu_memory_utilization)."""


def expert_memory_bytes(slots_per_rank: IntArray, shape: ModelShape) -> IntArray:
    """int64[R] bytes of routed-expert weights on each rank: slots × MoE layers × bytes of one expert."""
    return frozen(np.asarray(slots_per_rank, np.int64) * (len(shape.layers) * shape.expert_bytes), np.int64)


def kv_loss_frac(
    slots_per_rank: IntArray, baseline_slots_per_rank: IntArray, shape: ModelShape, hbm_bytes: int
) -> float | None:
    """Share of the KV cache that a plan's additional slots take away, on the rank that loses most.

    loss = additional expert bytes / (0.9 · HBM - expert bytes of the baseline). All that the baseline's experts leave
    of the usable memory is taken for KV cache; attention weights and activations are not subtracted, so the true share
    is a little larger. 0 when no rank has more slots, 1 when the weights do not fit, None when the model is assumed.
    """
    if shape.assumed:
        return None
    baseline = expert_memory_bytes(baseline_slots_per_rank, shape)
    extra = expert_memory_bytes(slots_per_rank, shape) - baseline
    room = USABLE_HBM_FRAC * hbm_bytes - baseline
    if bool((room <= 0).any()):
        return 1.0
    return float(np.clip(extra / room, 0.0, 1.0).max())
