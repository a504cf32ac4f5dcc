"""What labels cost when a plan is in force: experts that would be fetched, and ways to fetch fewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import BoolArray, FloatArray, IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.plan.migration import fetches, moving_slots, resident
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots, nearest_to
from easybalance_sim.simulate.staggering.relabel import Freedom, freedom, relabelled, search

MOVE_PRICES = (1e-4, 1e-3)
"""Of a fetched expert, as shares of the objective of perfectly even ranks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Way:
    """A plan to go to. labels: how its ranks are labelled · moves: experts that ranks must fetch, over all layers ·
    cross_node_moves: those from another NVLink domain · layers: in which something is fetched."""

    labels: str
    plan: Plan
    moves: int
    cross_node_moves: int
    layers: int


@dataclass(frozen=True, kw_only=True)
class MoveRow:
    """A `Way` and the balance it ends in: heat of later windows, max/mean."""

    labels: str
    moves: int
    cross_node_moves: int
    layers: int
    heat_mean: float
    heat_p99: float

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return asdict(self)


def fetched(plan: Plan, in_force: Plan) -> FloatArray:
    """float64[L, R, R] experts that rank r of layer l fetches when it takes what rank s of the plan holds; a second
    replica on one rank is a copy there."""
    missing, wanted = ~resident(in_force), resident(plan)
    found: FloatArray = np.matmul(missing.astype(np.float64), wanted.astype(np.float64).transpose(0, 2, 1))
    return found


def ways(
    plan: Plan,
    in_force: Plan,
    windows: FloatArray,
    best: IntArray,
    topology: Topology,
    *,
    inside_nodes: bool,
    seed: int,
) -> Sequence[Way]:
    """The plan from the one in force: as it is, named for fewest moves (the other use of the same freedom), and
    staggered in the layers that move anyway, in all layers, and in all layers at a price per move.

    windows: float64[W, L, R] past loads of the plan · best: int64[L, R] the labels found for them in all layers.
    """
    everywhere = freedom(plan, topology, inside_nodes=inside_nodes)
    moving: BoolArray = np.array(moving_slots(in_force, plan).any(axis=1))
    price = fetched(plan, in_force) * plan.ranks

    def under(labels: IntArray) -> Plan:
        return keep_slots(in_force, relabelled(plan, labels))

    partly = Freedom(kinds=everywhere.kinds, layers=moving)
    found = {
        "as is": plan,
        "fewest moves": nearest_to(in_force, plan, everywhere.kinds),
        "staggered, layers that move anyway": under(best if moving.all() else search(windows, partly, seed=seed)),
        "staggered, all layers": under(best),
    }
    for each in MOVE_PRICES:
        found[f"staggered, a move costs {each:g}"] = under(search(windows, everywhere, seed=seed, price=price * each))
    return [_way(name, in_force, target, topology) for name, target in found.items()]


def _way(labels: str, in_force: Plan, target: Plan, topology: Topology) -> Way:
    near, far = fetches(in_force, target, topology.node_of_rank)
    return Way(
        labels=labels,
        plan=target,
        moves=_once(near, target) + _once(far, target),
        cross_node_moves=_once(far, target),
        layers=int((near | far).any(axis=1).sum()),
    )


def _once(slots: BoolArray, plan: Plan) -> int:
    """Experts of these slots bool[L, P], each of a rank counted once."""
    found = np.zeros((plan.layers, plan.ranks, plan.experts), np.bool_)
    layer, slot = slots.nonzero()
    found[layer, plan.rank_of_slot[slot], plan.expert_of_slot[layer, slot]] = True
    return int(found.sum())
