"""`Plan`: which expert sits in which slot of which rank, per layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from easybalance_sim.arrays import Int32Array, IntArray, frozen
from easybalance_sim.errors import PlanError


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A placement of E experts on P slots per layer; slots are numbered rank by rank.

    expert_of_slot: int32[L, P] · slots_per_rank: int64[R], sums to P · experts: E · policy: who made it.
    Construction checks shapes, that every id is in 0..E-1 and that every expert has a replica in every layer;
    `plan.lint` has the stricter house rules. Raises `PlanError`.
    """

    expert_of_slot: Int32Array
    slots_per_rank: IntArray
    experts: int
    policy: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "expert_of_slot", frozen(self.expert_of_slot, np.int32))
        object.__setattr__(self, "slots_per_rank", frozen(self.slots_per_rank, np.int64))
        if self.expert_of_slot.ndim != 2 or self.expert_of_slot.shape[1] != int(self.slots_per_rank.sum()):
            raise PlanError(
                f"expert_of_slot has shape {self.expert_of_slot.shape}, slots per rank sum to "
                f"{int(self.slots_per_rank.sum())}",
                where=self.policy,
            )
        if not len(self.slots_per_rank) or self.slots_per_rank.min() < 1:
            raise PlanError("every rank must have at least one slot", where=self.policy)
        self._require_known_ids()
        self._require_all_served()

    def _require_known_ids(self) -> None:
        bad = np.argwhere((self.expert_of_slot < 0) | (self.expert_of_slot >= self.experts))
        if len(bad):
            layer, slot = (int(n) for n in bad[0])
            value = int(self.expert_of_slot[layer, slot])
            raise PlanError(f"expert {value} is not in 0..{self.experts - 1}", where=f"layer row {layer}, slot {slot}")

    def _require_all_served(self) -> None:
        missing = np.argwhere(self.replicas == 0)
        if len(missing):
            layer, expert = (int(n) for n in missing[0])
            raise PlanError(f"expert {expert} has no replica", where=f"layer row {layer}", fix="give it a slot")

    @property
    def layers(self) -> int:
        """L."""
        return len(self.expert_of_slot)

    @property
    def slots(self) -> int:
        """P, slots per layer."""
        return int(self.expert_of_slot.shape[1])

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.slots_per_rank)

    @property
    def redundant_slots(self) -> int:
        """P - E, slots that hold a second or later replica."""
        return self.slots - self.experts

    @cached_property
    def rank_of_slot(self) -> Int32Array:
        """int32[P] rank that owns each slot."""
        return frozen(np.repeat(np.arange(self.ranks, dtype=np.int32), self.slots_per_rank))

    @cached_property
    def slot_start(self) -> Int32Array:
        """int32[R+1] first slot of each rank, then P."""
        return frozen(np.concatenate([[0], np.cumsum(self.slots_per_rank)]), np.int32)

    @cached_property
    def replicas(self) -> Int32Array:
        """int32[L, E] number of replicas of each expert."""
        offset = self.expert_of_slot.astype(np.int64) + np.arange(self.layers)[:, None] * self.experts
        counts = np.bincount(offset.ravel(), minlength=self.layers * self.experts)
        return frozen(counts.reshape(self.layers, self.experts), np.int32)

    @cached_property
    def replica_start(self) -> Int32Array:
        """int32[L, E+1] where the slots of each expert begin in `replica_slot`."""
        ends = np.cumsum(self.replicas, axis=1)
        return frozen(np.concatenate([np.zeros((self.layers, 1), np.int64), ends], axis=1), np.int32)

    @cached_property
    def replica_slot(self) -> Int32Array:
        """int32[L, P] slots sorted by (expert, slot): the replica list that engines index into."""
        return frozen(np.argsort(self.expert_of_slot, axis=1, kind="stable"), np.int32)
