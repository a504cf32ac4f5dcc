"""Seconds that a sensor holds up a layer."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.cost.link_tables import TableLink
from easybalance_sim.cost.network import LinkCost, PhaseCost

COUNTER_BYTES = 4


def gather_s(cost: LayerCost, topology: Topology, experts: int) -> float:
    """Seconds until every rank has the counters of all ranks: E of 4 bytes each, over the links of the cost's dispatch.

    Priced as a dispatch in which every rank sends one message of E counters to every other rank, without the exchange
    of layouts before it: the latency of that kernel, which for so few bytes is nearly all, stands in for that of an
    all-gather.
    """
    size = np.bincount(topology.node_of_rank)[topology.node_of_rank]
    far, near = (frozen(copies[None, None], np.int32) for copies in (topology.ranks - size, size - 1))
    return float(_counters(cost.dispatch, experts).seconds(far, near)[0, 0])


def _counters(phase: PhaseCost, experts: int) -> PhaseCost:
    """The phase with one rank's counters as the copy that is sent."""
    size = float(COUNTER_BYTES * experts)
    if isinstance(phase, LinkCost):
        return replace(phase, copy_bytes=size, link=msgspec.structs.replace(phase.link, notify_us=()))
    return replace(phase, copy_bytes=size) if isinstance(phase, TableLink) else phase


def sensor_s(sensor: str, gather: float) -> float:
    """Seconds per layer between the router and the dispatch. gather: of `gather_s`, or as stated by the user.

    Only counts of the step itself hold it up: what a source sends it knows, and earlier counts travel while it works.
    """
    return gather if sensor == "step" else 0.0
