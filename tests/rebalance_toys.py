"""A cluster whose seconds are its busiest ranks' tokens, for hand-worked control loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.engine import links
from easybalance_sim.simulate.rebalance.serving import Service, Window

EXPERT_BYTES = 100


class ToyService(Service):
    """A step takes as many seconds as its busiest rank has tokens, summed over layers."""

    def step_seconds(self, window: Window, plan: Plan) -> FloatArray:
        """float64[1] of the window's mean step."""
        layer = np.arange(plan.layers)[:, None]
        share = window.tokens[layer, plan.expert_of_slot] / plan.replicas[layer, plan.expert_of_slot]
        loads = np.add.reduceat(share, plan.slot_start[:-1], axis=1)
        return np.array([loads.max(axis=1).sum() / window.steps + self.other_s])


def toy_service(ranks: int, slots: int, **changes: Any) -> ToyService:
    """One node; 100 bytes an expert, 100 bytes a second to each rank."""

    def no_cost(plan: Plan) -> Any:
        raise NotImplementedError

    topology = uniform(ranks, ranks, slots)
    settings: dict[str, Any] = {
        "topology": topology, "cost": no_cost, "route": links(topology, "nccl"), "top_k": 1,
        "expert_bytes": EXPERT_BYTES, "nvlink_bytes_per_s": 100.0, "network_bytes_per_s": 10.0, **changes,
    }  # fmt: skip
    return ToyService(**settings)


def toy_plan(rows: Sequence[Sequence[int]], ranks: int, experts: int) -> Plan:
    """Equal slots on every rank; rows: [L][P]."""
    slots = np.array(rows, np.int32)
    return Plan(
        expert_of_slot=slots, slots_per_rank=np.full(ranks, slots.shape[1] // ranks), experts=experts, policy="toy"
    )


def toy_window(number: int, tokens: Sequence[Sequence[int]] | IntArray, steps: float = 10.0) -> Window:
    """tokens: [L][E] of all its steps."""
    counts = np.array(tokens, np.int64)
    return Window(number=number, tokens=counts, steps=steps, step_tokens=10, drawn=counts[None])
