"""A small, complete plan document that tests start from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, TraceRecord, document

LAYER_IDS = (3, 4)


def example_plan() -> Plan:
    """Two layers, four experts, two ranks of three slots."""
    return Plan(
        expert_of_slot=np.array([[0, 1, 2, 3, 0, 1], [0, 2, 1, 3, 2, 0]]),
        slots_per_rank=np.array([3, 3]),
        experts=4,
        policy="eplb",
    )


def example_trace() -> TraceRecord:
    """Eight fit windows, eight held-out ones, split by request."""
    return TraceRecord(
        fingerprint="ab" * 32,
        files=("traces/样本.parquet",),
        file_fingerprints=("cd" * 32,),
        fit={"steps": [0, 127], "windows": 8},
        held_out={"steps": [0, 127], "windows": 8},
        split={"by": "request", "held_out": 0.5, "window_steps": 16, "seed": 0},
    )


def placed_document(
    plan: Plan, layer_ids: Sequence[int], *, model: str = "unknown", dispatch: str = "even", status: str = "accepted"
) -> PlanDocument:
    """A document of any plan, all ranks in one node."""
    return document(
        plan,
        layer_ids=layer_ids,
        topology=Topology(
            node_of_rank=np.zeros(plan.ranks, np.int64),
            slots_per_rank=plan.slots_per_rank,
            speed=np.ones(plan.ranks),
            profile="h200",
            hbm_bytes=0,
        ),
        trace=example_trace(),
        dispatch=dispatch,
        evidence={},
        verdict={"status": status, "findings": []},
        migration={},
        model=model,
    )


def example_document(parent: PlanDocument | None = None) -> PlanDocument:
    """An accepted plan with a little of everything."""
    return document(
        example_plan(),
        layer_ids=LAYER_IDS,
        topology=uniform(2, 2, 3),
        trace=example_trace(),
        dispatch="even",
        evidence={"plan": {"rank_imbalance": {"mean": 1.0625, "p99": np.float64(1.25)}}, "steps": np.int64(128)},
        verdict={"status": "accepted", "findings": []},
        migration={"moves": 0, "bytes": 0, "seconds": None},
        model="example-moe",
        model_revision="main",
        phase="decode",
        parent=parent,
    )
