"""The uneven placement that a scenario describes, and the skew of traffic at which it is as uneven as described.

Heat is a sum over layers, so the ratio between two ranks is a mean of the layers' own ratios: no stacking makes it
larger than it is in the layers themselves. Where few layers are stacked the described ratio may be out of reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.capacity.scenario import Heat, Model, Traffic
from easybalance_sim.simulate.capacity.traffic import Demand, demand, log_weights
from easybalance_sim.trace.synthesis import MOST_SKEW

_HALVINGS = 24


@dataclass(frozen=True, kw_only=True, eq=False)
class Stacked:
    """plan: the placement in force · truth: the traffic · skew: of its experts' weights · heat: float64[R] tokens of
    all layers on each rank, mean 1 · gap: of the hot card over that of the cold one · layer_peak: max/mean rank load of
    a stacked layer, mean over them."""

    plan: Plan
    truth: Demand
    skew: float
    heat: FloatArray
    gap: float
    layer_peak: float


def stacked(model: Model, traffic: Traffic, heat: Heat, ranks: int, seed: int) -> Stacked:
    """Traffic and placement with the described gap, or the described peak of a stacked layer; with the largest skew
    that is drawn where even that does not reach it."""
    logs = log_weights(model, traffic, seed)

    def at(skew: float) -> Stacked:
        truth = demand(model, traffic, logs, skew)
        return _measured(_place(truth.mean, heat, ranks), truth, skew, heat)

    if heat.layer_peak:
        return at(_first(lambda skew: at(skew).layer_peak >= heat.layer_peak))
    return at(_first(lambda skew: at(skew).gap >= heat.gap))


def _first(reached: Callable[[float], bool]) -> float:
    low, high = 0.0, MOST_SKEW
    if not reached(high):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def stacked_layers(heat: Heat, layers: int) -> IntArray:
    """int64[n] rows of the layers whose hot experts are stacked, evenly spread."""
    return np.unique(np.linspace(0, layers - 1, heat.layers or layers).round().astype(np.int64))


def _place(load: FloatArray, heat: Heat, ranks: int) -> Plan:
    layers, experts = load.shape
    piled = set(stacked_layers(heat, layers).tolist())
    rows = [_row(np.argsort(-load[row], kind="stable"), heat if row in piled else None, ranks) for row in range(layers)]
    return Plan(
        expert_of_slot=frozen(np.stack(rows), np.int32),
        slots_per_rank=np.full(ranks, experts // ranks),
        experts=experts,
        policy="in force",
    )


def _row(hottest: IntArray, heat: Heat | None, ranks: int) -> IntArray:
    """int64[E] expert of each slot. hottest: int64[E] experts from hot to cold · heat: None = dealt evenly."""
    each, by_rank = len(hottest) // ranks, np.empty((ranks, len(hottest) // ranks), np.int64)
    if heat is None:
        by_rank[:] = _snake(hottest, ranks)
        return by_rank.ravel()
    hot, cold = heat.hot_card - 1, heat.cold_card - 1
    others = [rank for rank in range(ranks) if rank not in (hot, cold)]
    if heat.shape == "one-hot":
        by_rank[hot], by_rank[[*others, cold]] = hottest[:each], _snake(hottest[each:], ranks - 1)
    elif heat.shape == "one-cold":
        by_rank[cold], by_rank[[hot, *others]] = hottest[-each:], _snake(hottest[:-each], ranks - 1)
    else:
        by_rank[[hot, *others, cold]] = hottest.reshape(ranks, each)
    return by_rank.ravel()


def _snake(hottest: IntArray, ranks: int) -> IntArray:
    """int64[R, S] dealt there and back, so that who got the hottest gets the coldest."""
    rounds = hottest.reshape(-1, ranks).copy()
    rounds[1::2] = rounds[1::2, ::-1]
    return rounds.T


def _measured(plan: Plan, truth: Demand, skew: float, heat: Heat) -> Stacked:
    layer = np.arange(plan.layers)[:, None]
    loads = np.add.reduceat(truth.mean[layer, plan.expert_of_slot], plan.slot_start[:-1], axis=1)
    peaks, node = loads.max(axis=1) / loads.mean(axis=1), loads.sum(axis=0)
    return Stacked(
        plan=plan,
        truth=truth,
        skew=skew,
        heat=frozen(node / node.mean()),
        gap=float(node[heat.hot_card - 1] / node[heat.cold_card - 1]),
        layer_peak=float(peaks[stacked_layers(heat, plan.layers)].mean()),
    )
