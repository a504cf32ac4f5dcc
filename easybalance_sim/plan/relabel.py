"""Fewer moves for the same balance: which rank takes a set of experts, and in which slots, are free choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from easybalance_sim.arrays import AnyArray, Int32Array, IntArray, frozen
from easybalance_sim.plan.plan import Plan


def nearest_to(old: Plan, new: Plan, rank_kind: AnyArray) -> Plan:
    """`new` with its ranks renamed and its slots ordered so that as much as possible of `old` stays where it is.

    rank_kind: int[R] ranks of one kind (same slots, speed and node, say) may swap their experts. Per layer an
    assignment problem over the experts that a rank of `old` and a rank of `new` share; the loads of the ranks are the
    same up to their names. Plans must agree in layers, experts and ranks; ranks with different numbers of slots in
    `new` are never of one kind.
    """
    kind = np.unique(np.stack([rank_kind, new.slots_per_rank]), axis=1, return_inverse=True)[1].reshape(-1)
    rows = [_renamed(old, new, kind, layer) for layer in range(new.layers)]
    return keep_slots(old, replace(new, expert_of_slot=frozen(np.stack(rows), np.int32)))


def keep_slots(old: Plan, new: Plan) -> Plan:
    """`new` with every expert that stays on its rank in the slot it had, where the rank still has that slot."""
    rows = np.array(new.expert_of_slot)
    for layer in range(new.layers):
        for rank in range(new.ranks):
            mine = slice(int(new.slot_start[rank]), int(new.slot_start[rank + 1]))
            theirs = slice(int(old.slot_start[rank]), int(old.slot_start[rank + 1]))
            rows[layer, mine] = _in_old_order(old.expert_of_slot[layer, theirs], rows[layer, mine])
    return replace(new, expert_of_slot=frozen(rows, np.int32))


def _renamed(old: Plan, new: Plan, rank_kind: AnyArray, layer: int) -> Int32Array:
    had, wants = _slots_of(old, layer) > 0, _slots_of(new, layer)
    row = np.array(new.expert_of_slot[layer])
    for kind in np.unique(rank_kind):
        ranks = np.flatnonzero(rank_kind == kind)
        shared = had[ranks].astype(np.int64) @ wants[ranks].T
        place, source = linear_sum_assignment(shared, maximize=True)
        for target, origin in zip(ranks[place], ranks[source], strict=True):
            row[new.slot_start[target] : new.slot_start[target + 1]] = new.expert_of_slot[
                layer, new.slot_start[origin] : new.slot_start[origin + 1]
            ]
    return row


def _slots_of(plan: Plan, layer: int) -> IntArray:
    """int64[R, E] slots of each expert on each rank."""
    found = np.zeros((plan.ranks, plan.experts), np.int64)
    np.add.at(found, (plan.rank_of_slot, plan.expert_of_slot[layer]), 1)
    return found


def _in_old_order(old: Int32Array, new: Int32Array) -> Int32Array:
    """The experts of `new` with those that `old` has too at their old positions."""
    out = np.full(len(new), -1, np.int32)
    rest = list(new.tolist())
    for position, expert in enumerate(old.tolist()[: len(new)]):
        if expert in rest:
            out[position] = expert
            rest.remove(expert)
    out[out < 0] = rest
    return out
