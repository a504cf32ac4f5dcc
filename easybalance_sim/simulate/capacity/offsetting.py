"""A light router offset in the long run: what a slow feedback on rank load makes of the shares of experts.

Selection is by log weight; the offset of an expert is gain · (load of its rank in this layer / mean - 1), taken off.
Fed back through a window it comes to rest where load and offset fit each other. The gain is the largest that changes no
more than a given share of the assignments, and at most 1 in units of the loop (offset times what a unit of it takes off
the load), at which measured loops are still calm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray, sealed
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.capacity.traffic import Demand, chosen

MOST_LOOP_GAIN = 1.0
"""Offset measured as free and calm up to here with one step's delay and a window of 12."""
_ROUNDS, _GAINS = 8, 6


@dataclass(frozen=True, kw_only=True, eq=False)
class Offset:
    """truth: the traffic as the router chooses with the offset · gain: offset per unit of relative load · changed:
    share of assignments that go elsewhere, at least."""

    truth: Demand
    gain: float
    changed: float


def offset(truth: Demand, plan: Plan, share: float) -> Offset:
    """The strongest light offset that changes at most `share` of the assignments."""
    gain, found = MOST_LOOP_GAIN, at_gain(truth, plan, MOST_LOOP_GAIN)
    if found.changed <= share:
        return found
    low, best = 0.0, Offset(truth=truth, gain=0.0, changed=0.0)
    for _ in range(_GAINS):
        middle = (low + gain) / 2
        found = at_gain(truth, plan, middle)
        if found.changed <= share:
            low, best = middle, found
        else:
            gain = middle
    return best


def at_gain(truth: Demand, plan: Plan, gain: float) -> Offset:
    """Where the loop comes to rest; the offset moves half of the way in each round, so that it does."""
    off, before = np.zeros(truth.weights.shape[1:]), truth.chosen
    share = before
    for _ in range(_ROUNDS):
        off += 0.5 * (gain * _rank_excess(np.einsum("z,zle->le", truth.mix, share), plan) - off)
        share = chosen(truth.weights * np.exp(-off), truth.top_k)
    changed = np.abs(share - before).sum(axis=2).mean(axis=1) / (2 * truth.top_k)
    weights = sealed(truth.weights * np.exp(-off))
    return Offset(truth=replace(truth, weights=weights), gain=gain, changed=float(truth.mix @ changed))


def _rank_excess(load: FloatArray, plan: Plan) -> FloatArray:
    """float64[L, E] load of an expert's ranks over the mean - 1, mean over its replicas; load: float64[L, E]."""
    layer = np.arange(plan.layers)[:, None]
    replicas = plan.replicas[layer, plan.expert_of_slot]
    ranks = np.add.reduceat(load[layer, plan.expert_of_slot] / replicas, plan.slot_start[:-1], axis=1)
    excess = ranks / ranks.mean(axis=1, keepdims=True) - 1.0
    out = np.zeros_like(load)
    np.add.at(out, (np.broadcast_to(layer, plan.expert_of_slot.shape), plan.expert_of_slot),
              excess[:, plan.rank_of_slot] / replicas)  # fmt: skip
    return out
