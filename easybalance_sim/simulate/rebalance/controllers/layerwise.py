"""TensorRT-LLM's online balancer: a decaying load, and some layers re-planned every iteration, round robin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import FloatArray, frozen, stream
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots
from easybalance_sim.policies import Problem
from easybalance_sim.simulate.rebalance.rollout_style import Style
from easybalance_sim.simulate.rebalance.serving import Service, Window

DECAY = 0.9
"""Of the load per iteration (TensorRT-LLM's decayFactor)."""


@dataclass(kw_only=True)
class Layerwise:
    """layers_per_step: re-planned in every engine step. The load of a layer starts anew when it was re-planned.

    A window of the trace changes a layer once at most, however often its turn came in it: real loops move more.
    """

    name: str
    service: Service
    layers_per_step: float
    style: Style = field(default_factory=lambda: Style(chunk_layers=1, stops=False))
    _load: FloatArray | None = None
    _next: int = 0
    _owed: float = 0.0

    def observe(self, window: Window, plan: Plan, *, busy: bool) -> Plan | None:
        """Ages the load by the window's steps, then plans the layers whose turn it is."""
        load = self._aged(window)
        self._load = load
        self._owed = min(self._owed + self.layers_per_step * window.steps, plan.layers)
        count = int(self._owed)
        if busy or not count:
            return None
        self._owed -= count
        turn = (self._next + np.arange(count)) % plan.layers
        self._next = int(self._next + count) % plan.layers
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

    def _aged(self, window: Window) -> FloatArray:
        """float64[L, E] the load after a window: sum over its steps of decay^age · counts."""
        weight, sample = remembered(window.steps)
        total = window.tokens.sum(axis=1, keepdims=True)
        share = np.where(total > 0, window.tokens / np.maximum(total, 1), 1 / window.tokens.shape[1])
        one = window.step_tokens * self.service.top_k
        rng = stream(self.service.seed, f"{self.name} {window.number}")
        # What such a short memory holds is a sample of few steps, noise included.
        counts = rng.multinomial(max(1, round(sample * one)), share) * (total > 0)
        before = np.zeros_like(share) if self._load is None else self._load
        aged: FloatArray = DECAY**window.steps * before + counts * (weight / sample)
        return aged


def remembered(steps: float) -> tuple[float, float]:
    """(sum of the weights decay^age of so many steps, how many equally weighted steps hold as much noise)."""
    weight = (1 - DECAY**steps) / (1 - DECAY)
    squares = (1 - DECAY ** (2 * steps)) / (1 - DECAY**2)
    return weight, weight**2 / squares
