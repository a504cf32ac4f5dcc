"""TensorRT-LLM's online balancer: a decaying load, and some layers re-planned every iteration, round robin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray, frozen
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots
from easybalance_sim.policies import Problem
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Service, Window

DECAY = 0.9
"""Of the load per iteration (TensorRT-LLM's decayFactor)."""


@dataclass(kw_only=True)
class Layerwise:
    """layers_per_step: re-planned in every engine step. The load of a layer starts anew when it was re-planned."""

    name: str
    service: Service
    layers_per_step: float
    style: Style = field(default_factory=lambda: Style(chunk_layers=1, stops=False))
    _load: FloatArray | None = None
    _next: int = 0
    _owed: float = 0.0

    def observe(self, window: Window, plan: Plan) -> Plan | None:
        """Ages the load by the window's steps, then plans the layers whose turn it is."""
        per_step = window.tokens / max(window.steps, 1.0)
        kept = DECAY**window.steps
        load = np.zeros_like(per_step) if self._load is None else self._load
        load = kept * load + per_step * (1 - kept) / (1 - DECAY)
        self._owed += self.layers_per_step * window.steps
        count = min(int(self._owed), plan.layers)
        self._owed = min(self._owed - count, plan.layers)
        turn = (self._next + np.arange(count)) % plan.layers
        self._next = int(self._next + count) % plan.layers
        self._load = load
        if not count:
            return None
        problem = Problem(
            forecast=load[turn] + 1e-9,
            windows=window.tokens[None, turn],
            topology=self.service.topology,
            top_k=self.service.top_k,
        )
        old = replace(plan, expert_of_slot=frozen(plan.expert_of_slot[turn], np.int32))
        rows = np.array(plan.expert_of_slot)
        rows[turn] = keep_slots(old, policies.make("eplb", problem)).expert_of_slot
        load[turn] = 0.0
        return replace(plan, expert_of_slot=frozen(rows, np.int32))
