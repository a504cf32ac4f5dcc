"""Bytes that expert slots take, and what redundant slots cost in KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import BoolArray, IntArray, frozen
from easybalance_sim.cluster.model_shape import ModelShape

USABLE_HBM_FRAC = 0.9
"""Share of the memory that engines hand to weights and cache (the default of vLLM's gpu_memory_utilization)."""


def expert_memory_bytes(slots_per_rank: IntArray, shape: ModelShape) -> IntArray:
    """int64[R] bytes of routed-expert weights on each rank: slots × MoE layers × bytes of one expert."""
    return frozen(np.asarray(slots_per_rank, np.int64) * (len(shape.layers) * shape.expert_bytes), np.int64)


def staging_bytes(arriving: BoolArray, slots_per_rank: IntArray, shape: ModelShape) -> int | None:
    """Bytes that a rank needs beside its experts while new ones arrive, None when the model is assumed.

    arriving: bool[L, P] slots whose expert comes from another rank · slots_per_rank: int64[R]. Taken: layers move one
    after the other, all of a layer's new experts arrive before old ones are overwritten (so a rank can go on serving),
    and the buffer is used again for the next layer. The rank and layer with most arrivals decide.
    """
    if shape.assumed:
        return None
    starts = np.cumsum(slots_per_rank) - slots_per_rank
    return int(np.add.reduceat(arriving, starts, axis=1, dtype=np.int64).max()) * shape.expert_bytes


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


@dataclass(frozen=True, kw_only=True)
class KvRoom:
    """KV cache of a rank that keeps whole tokens (attention data-parallel, as DeepEP deployments run it).

    token_bytes: of one token over all attention layers, 0 = unknown · moe_layers: of the whole model, all of which hold
    experts · hbm_bytes: of one GPU.
    """

    token_bytes: float
    moe_layers: int
    hbm_bytes: int

    def tokens_lost(self, extra_slots: float, shape: ModelShape) -> int | None:
        """Tokens of KV cache that additional slots displace on the fullest rank, None when unknown.

        extra_slots: of that rank, mean over layers.
        """
        if not self.token_bytes or shape.assumed:
            return None
        return int(np.ceil(max(extra_slots, 0) * self.slot_bytes(shape) / self.token_bytes))

    def tokens_left(self, slots: float, shape: ModelShape) -> int | None:
        """Tokens that fit beside the experts of the fullest rank, None when unknown; slots: its own, mean over layers.

        Taken of 0.9 · HBM; attention weights and activations are not subtracted, so the true number is smaller.
        """
        if not self.token_bytes or shape.assumed:
            return None
        room = USABLE_HBM_FRAC * self.hbm_bytes - slots * self.slot_bytes(shape)
        return max(int(room // self.token_bytes), 0)

    def expert_frac(self, slots: float, staging: int, shape: ModelShape) -> float | None:
        """Share of the GPU's memory that experts and the staging buffer take, None when the model is assumed.

        slots: of the fullest rank, mean over layers · staging: bytes, see `staging_bytes`.
        """
        return None if shape.assumed else (slots * self.slot_bytes(shape) + staging) / self.hbm_bytes

    def most_slots(self, shape: ModelShape) -> int | None:
        """Slots of a rank that the usable memory holds, None when the model is assumed."""
        return None if shape.assumed else int(USABLE_HBM_FRAC * self.hbm_bytes // self.slot_bytes(shape))

    def slot_bytes(self, shape: ModelShape) -> int:
        """Bytes of one slot in every MoE layer of the model, which may have more of them than the trace."""
        return max(self.moe_layers, len(shape.layers)) * shape.expert_bytes
