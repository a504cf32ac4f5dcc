"""What is left of a plan when ranks are lost, and the fewest moves that make it whole again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, Int32Array, IntArray, frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan

REPAIR = "repair"
"""Policy name of a repaired plan."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Survivors:
    """The ranks of a plan that are left, renumbered in order.

    old_rank: int64[R] the number that each had · slots_per_rank: int64[R] slots that they fill, P in all ·
    expert_of_slot: int32[L, P] · experts: E, of which some may have no replica left.
    """

    old_rank: IntArray
    slots_per_rank: IntArray
    expert_of_slot: Int32Array
    experts: int

    @cached_property
    def held(self) -> BoolArray:
        """bool[L, R, E] experts on each rank."""
        rank = np.repeat(np.arange(len(self.old_rank)), self.slots_per_rank)
        held = np.zeros((len(self.expert_of_slot), len(self.old_rank), self.experts), np.bool_)
        held[np.arange(len(held))[:, None], rank, self.expert_of_slot] = True
        return frozen(held)

    @cached_property
    def lost(self) -> BoolArray:
        """bool[L, E] experts without a replica: they have to be fetched from where the weights are stored."""
        return frozen(~self.held.any(axis=1))

    def require_room(self, topology: Topology) -> None:
        """Raise `UsageError` when all slots of the survivors are too few, or a rank has fewer than it fills."""
        if topology.slots < self.experts:
            raise UsageError(
                f"the {topology.ranks} ranks that are left have {topology.slots} slots, too few for {self.experts} "
                "experts",
                where="--lost-ranks",
                fix=f"give --slots-per-rank {-(-self.experts // topology.ranks)} or more, or name fewer lost ranks",
            )
        short = np.flatnonzero(topology.slots_per_rank < self.slots_per_rank)
        if len(short):
            raise UsageError(
                f"rank {int(self.old_rank[short[0]])} holds {int(self.slots_per_rank[short[0]])} experts per layer",
                where="--slots-per-rank",
                fix=f"give {int(self.slots_per_rank.max())} or more",
            )


def surviving_ranks(ranks: int, lost: Sequence[int]) -> IntArray:
    """int64[R'] the ranks of 0..R-1 that are not lost. Raises `UsageError` for a rank that is not there, one named
    twice, and when none is left."""
    for rank in lost:
        if not 0 <= rank < ranks:
            raise UsageError(f"there is no rank {rank}", where="--lost-ranks", fix=f"the plan has 0 to {ranks - 1}")
        if list(lost).count(rank) > 1:
            raise UsageError(f"rank {rank} is named twice", where="--lost-ranks", fix="name each lost rank once")
    if len(lost) == ranks:
        raise UsageError("no rank is left", where="--lost-ranks", fix="name fewer ranks")
    return frozen(np.setdiff1d(np.arange(ranks), np.array(lost, np.int64)), np.int64)


def survivors(plan: Plan, old_rank: IntArray) -> Survivors:
    """What the ranks `old_rank` (int64[R'], rising) hold."""
    kept = np.isin(plan.rank_of_slot, old_rank)
    return Survivors(
        old_rank=frozen(old_rank, np.int64),
        slots_per_rank=frozen(plan.slots_per_rank[old_rank], np.int64),
        expert_of_slot=frozen(plan.expert_of_slot[:, kept], np.int32),
        experts=plan.experts,
    )


def topology_of(topology: Topology, old_rank: IntArray, slots_per_rank: int | None = None) -> Topology:
    """The cluster that the ranks `old_rank` make; nodes without a rank left are gone. slots_per_rank: on every rank
    from now on, None = as before."""
    slots = topology.slots_per_rank[old_rank]
    return replace(
        topology,
        node_of_rank=np.unique(topology.node_of_rank[old_rank], return_inverse=True)[1],
        slots_per_rank=slots if slots_per_rank is None else np.full(len(slots), slots_per_rank),
        speed=topology.speed[old_rank],
    )


def repair(left: Survivors, topology: Topology, load: FloatArray) -> Plan:
    """The surviving slots as they are, lost experts in slots of experts that have another replica: one move per lost
    expert, the busiest rank as low as the greedy choice of those slots leaves it.

    topology: of the survivors · load: float64[L, E] ≥ 0. When the survivors' slots are fewer than the experts, ranks
    take more of the slots that they have. Raises `UsageError` without room, see `Survivors.require_room`.
    """
    left.require_room(topology)
    used = _used_slots(left, topology)
    first = np.concatenate([[0], np.cumsum(used)])
    kept = np.concatenate([np.arange(n) + at for n, at in zip(left.slots_per_rank, first[:-1], strict=True)])
    slots = np.full((len(left.expert_of_slot), int(used.sum())), -1, np.int32)
    slots[:, kept] = left.expert_of_slot
    rank_of_slot = np.repeat(np.arange(len(used)), used)
    pace = topology.speed / topology.speed.mean()
    for layer, row in enumerate(slots):
        _Layer(row, rank_of_slot, load[layer], pace).complete(np.flatnonzero(left.lost[layer]))
    return Plan(expert_of_slot=slots, slots_per_rank=used, experts=left.experts, policy=REPAIR)


def _used_slots(left: Survivors, topology: Topology) -> IntArray:
    """int64[R] slots of the repaired plan: as before, and where these are fewer than the experts one more in turn on
    the rank that has most of its slots free."""
    used = np.array(left.slots_per_rank, np.int64)
    for _ in range(max(0, left.experts - int(used.sum()))):
        used[np.argmax(topology.slots_per_rank - used)] += 1
    return used


class _Layer:
    """One layer under repair. slots: int32[P], -1 = empty, changed in place · rank_of_slot: int64[P] · load: float64[E]
    · pace: float64[R] relative speed."""

    def __init__(self, slots: Int32Array, rank_of_slot: IntArray, load: FloatArray, pace: FloatArray) -> None:
        self.slots, self.rank, self.load, self.pace = slots, rank_of_slot, load, pace
        self.count = np.bincount(slots[slots >= 0], minlength=len(load))

    def complete(self, lost: IntArray) -> None:
        """Place lost experts, heaviest first. Slots are only added where experts are more than slots, and then as many
        experts were lost at least: none stays empty."""
        for expert in sorted(lost.tolist(), key=lambda e: (-self.load[e], e)):
            empty = np.flatnonzero(self.slots < 0)
            spare = empty if len(empty) else np.flatnonzero(self.count[self.slots] > 1)
            self._put(expert, int(spare[self._gentlest(expert, spare)]))

    def _put(self, expert: int, slot: int) -> None:
        if self.slots[slot] >= 0:
            self.count[self.slots[slot]] -= 1
        self.slots[slot] = expert
        self.count[expert] += 1

    def _gentlest(self, expert: int, spare: IntArray) -> int:
        """Which of the slots `spare` leaves the busiest rank lowest when the expert takes it; on a tie the one whose
        expert has most replicas, then the first."""
        here = np.arange(len(spare))
        held, unit = self._held(), self.load / np.maximum(self.count, 1)
        loads = np.broadcast_to(held @ unit, (len(spare), len(self.pace))).copy()
        victim, rank = self.slots[spare], self.rank[spare]
        taken = victim >= 0
        others = self.load[victim] / np.maximum(self.count[victim] - 1, 1)
        loads += np.where(taken, others - unit[victim], 0.0)[:, None] * held[:, victim].T
        loads[here, rank] += self.load[expert] - np.where(taken, others, 0.0)
        replicas = np.where(taken, self.count[victim], 0)
        return int(np.lexsort((here, -replicas, (loads / self.pace).max(axis=1)))[0])

    def _held(self) -> AnyArray:
        """float64[R, E] 1 where a rank holds an expert."""
        held, filled = np.zeros((len(self.pace), len(self.load))), self.slots >= 0
        held[self.rank[filled], self.slots[filled]] = 1.0
        return held
