"""What a window of traffic costs under a plan, and what changing the plan costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray, stream
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.cost.layer import LayerCost
from easybalance_sim.cost.slots import SlotCost
from easybalance_sim.plan.plan import Plan
from easybalance_sim.replay.engine import Links
from easybalance_sim.replay.expected import draw_counts, drawn_layer_seconds, even_imbalance
from easybalance_sim.simulate.rebalance.transfer import Transfer, transfer


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """One window as a control loop sees it. number: its place · tokens: int64[L, E] assignments · steps: that it lasts
    · step_tokens: tokens of one step over all ranks, at least 1 · drawn: int64[D, L, E] steps drawn from it, the same
    for every plan."""

    number: int
    tokens: IntArray
    steps: float
    step_tokens: int
    drawn: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Service:
    """The cluster that serves. cost: of a plan's layers · route: its links · expert_bytes: of one expert in one layer ·
    nvlink_bytes_per_s, network_bytes_per_s: for migrating · other_s: of a step outside the MoE layers · draws: steps
    drawn from a window · slot_cost: what searches minimise, None = tokens."""

    topology: Topology
    cost: Callable[[Plan], LayerCost]
    route: Links
    top_k: int
    expert_bytes: int
    nvlink_bytes_per_s: float
    network_bytes_per_s: float
    other_s: float = 0.0
    draws: int = 4
    seed: int = 0
    slot_cost: SlotCost | None = None
    _costs: dict[tuple[int, ...], LayerCost] = field(default_factory=dict, repr=False)

    def window(self, number: int, tokens: IntArray, steps: float, step_tokens: int) -> Window:
        """A window with its drawn steps; tokens: int64[L, E]."""
        rng = stream(self.seed, f"window {number}")
        several = np.broadcast_to(tokens, (self.draws, *tokens.shape))
        drawn = draw_counts(several, step_tokens * self.top_k, rng)
        return Window(number=number, tokens=tokens, steps=steps, step_tokens=step_tokens, drawn=drawn)

    def step_seconds(self, window: Window, plan: Plan) -> FloatArray:
        """float64[D] seconds of each drawn step under a plan, what lies outside the MoE layers included."""
        slots = tuple(plan.slots_per_rank.tolist())
        if slots not in self._costs:
            self._costs[slots] = self.cost(plan)
        seconds = drawn_layer_seconds(
            window.drawn, plan, self._costs[slots], self.topology, self.route, window.step_tokens, self.top_k
        )
        total: FloatArray = seconds.sum(axis=1) + self.other_s
        return total

    def imbalance(self, window: Window, plan: Plan) -> FloatArray:
        """float64[L] of the whole window when replicas share evenly, NaN in a layer without traffic."""
        ratio: FloatArray = even_imbalance(window.tokens[None], plan, self.topology.speed)[0]
        return ratio

    def transfer(self, old: Plan, new: Plan) -> Transfer:
        """What it takes to go from one plan to the other."""
        return transfer(
            old,
            new,
            expert_bytes=self.expert_bytes,
            node_of_rank=self.topology.node_of_rank,
            nvlink_bytes_per_s=self.nvlink_bytes_per_s,
            network_bytes_per_s=self.network_bytes_per_s,
        )
