"""Plans of our own policies, as documents, for the engines to load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import Int32Array, frozen
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.exports import load
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, document
from easybalance_sim.policies import Problem, make
from easybalance_sim.replay.dispatch import prepare
from tests.engines.sglang_runtime import Serving
from tests.plan_documents import example_trace


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model on a cluster. dense: layers in front of the first MoE layer · moe: MoE layers · every: from one MoE layer
    to the next."""

    ranks: int
    nodes: int
    experts: int
    slots_per_rank: int
    dense: int
    moe: int
    every: int = 1
    seed: int = 0

    @property
    def layers(self) -> tuple[int, ...]:
        """Absolute ids of the MoE layers."""
        return tuple(range(self.dense, self.hidden_layers, self.every))

    @property
    def hidden_layers(self) -> int:
        """All layers."""
        return self.dense + self.moe * self.every

    @property
    def topology(self) -> Topology:
        """Equal nodes."""
        return uniform(self.ranks, self.ranks // self.nodes, self.slots_per_rank)

    @property
    def serving(self) -> Serving:
        """How SGLang is started for it."""
        return Serving(
            ranks=self.ranks,
            nodes=self.nodes,
            experts=self.experts,
            hidden_layers=self.hidden_layers,
            redundant=self.ranks * self.slots_per_rank - self.experts,
        )

    def plan(self) -> Plan:
        """EPLB's plan for a load in which few experts are hot."""
        rng = np.random.default_rng(self.seed)
        load = rng.permuted(np.tile(1.0 / np.arange(1, self.experts + 1), (self.moe, 1)), axis=1)
        windows = np.zeros((0, self.moe, self.experts), np.int64)
        return make("eplb", Problem(forecast=load, windows=windows, topology=self.topology))

    def document(self, plan: Plan) -> PlanDocument:
        """A plan file's content."""
        return document(
            plan,
            layer_ids=self.layers,
            topology=self.topology,
            trace=example_trace(),
            dispatch="sglang-static",
            evidence={},
            verdict={"status": "accepted", "findings": []},
            migration={"moves": 0, "bytes": 0, "seconds": None},
        )

    def dispatch_table(self, plan: Plan) -> Int32Array:
        """int32[R, L, E]: the slot to which each source rank sends each expert's tokens in our replay."""
        return prepare("sglang-static", plan, frozen(self.topology.node_of_rank, np.int32), 0, self.layers).table


DEEPSEEK_V3 = Case(ranks=32, nodes=4, experts=256, slots_per_rank=9, dense=3, moe=58)


def exported(case: Case, plan: Plan, output: Path) -> Path:
    """The file for --init-expert-location that we write, .json or .pt."""
    deployment = Deployment(
        ranks=case.ranks,
        experts=case.experts,
        hidden_layers=case.hidden_layers,
        moe_layers=case.layers,
    )
    return load("sglang").write(case.document(plan), deployment, output, "").files[0]
