"""Physical slot ids back to logical experts, for recordings made while a plan with replicas was in force."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import AnyArray, Int32Array, IntArray, frozen, require_shape
from easybalance_sim.errors import TraceError

MOST_EXPERTS = 65536


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotMap:
    """Which expert sat in which slot while a recording was made.

    expert_of_slot: int32[L, P] · experts: E · name: where the map comes from, for messages · layers: absolute ids of
    the rows, () = not known.
    Raises `TraceError` when a slot holds no expert of 0..E-1, or E is beyond what a trace can name.
    """

    expert_of_slot: Int32Array | IntArray
    experts: int
    name: str
    layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require_shape("expert_of_slot", np.asarray(self.expert_of_slot), (None, None))
        if not 1 <= self.experts <= MOST_EXPERTS:
            raise TraceError(f"{self.experts} experts", where=self.name, fix="give the plan that was in force")
        # Before the ids are narrowed: one beyond 32 bits would come back as another expert.
        bad = np.argwhere((self.expert_of_slot < 0) | (self.expert_of_slot >= self.experts))
        if len(bad):
            layer, slot = (int(n) for n in bad[0])
            value = int(self.expert_of_slot[layer, slot])
            raise TraceError(
                f"layer row {layer}, slot {slot}: expert {value} is not in 0..{self.experts - 1}",
                where=self.name,
                fix="give the plan that was in force",
            )
        object.__setattr__(self, "expert_of_slot", frozen(self.expert_of_slot, np.int32))

    @property
    def slots(self) -> int:
        """P."""
        return int(self.expert_of_slot.shape[1])

    def of_layers(self, ids: tuple[int, ...]) -> SlotMap:
        """The rows of these layers, in this order. Raises `TraceError` for a layer that the map does not have."""
        known = self.layers or tuple(range(len(self.expert_of_slot)))
        missing = sorted(set(ids) - set(known))
        if missing:
            raise TraceError(f"has no layer {missing[0]}", where=self.name, fix="give the plan that was in force")
        rows = self.expert_of_slot[[known.index(layer) for layer in ids]]
        return SlotMap(expert_of_slot=rows, experts=self.experts, name=self.name, layers=ids)

    def counts(self, of_slots: IntArray) -> IntArray:
        """int64[..., L, E]: counts of slots, int64[..., L, P], summed over the replicas of each expert."""
        lead = of_slots.shape[:-2]
        layers = len(self.expert_of_slot)
        if of_slots.shape[-2:] != self.expert_of_slot.shape:
            raise TraceError(
                f"counts have shape {of_slots.shape[-2:]}, the map {self.expert_of_slot.shape}",
                where=self.name,
                fix="give the plan that was in force",
            )
        flat = of_slots.reshape(-1, layers, self.slots)
        summed = np.zeros((layers, self.experts, len(flat)), np.int64)
        for layer, experts in enumerate(self.expert_of_slot):
            np.add.at(summed[layer], experts, flat[:, layer].T)
        return np.ascontiguousarray(np.moveaxis(summed, 2, 0)).reshape(*lead, layers, self.experts)

    def ids(self, of_slots: AnyArray, layer: int) -> AnyArray:
        """int32[...]: slot ids of one layer row as experts; -1 (padding) stays. Raises `TraceError` for other ids."""
        bad = (of_slots < -1) | (of_slots >= self.slots)
        if bad.any():
            raise TraceError(
                f"layer row {layer}: slot {int(of_slots[bad][0])} is not in 0..{self.slots - 1}",
                where=self.name,
                fix="give the plan that was in force",
            )
        return np.where(of_slots < 0, -1, self.expert_of_slot[layer][of_slots])
