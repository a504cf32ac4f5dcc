"""A trace as windows over time, and the cluster that serves them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.cost.slots import SlotCost, slot_cost
from easybalance_sim.load.counting import windows_of_counts
from easybalance_sim.planning.session import Session, selected_windows
from easybalance_sim.rebalancing.request import RebalanceRequest
from easybalance_sim.replay.engine import links
from easybalance_sim.replay.traffic import TokenTraffic
from easybalance_sim.simulate.rebalance.serving import Service, Window
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import CountTrace


@dataclass(frozen=True, kw_only=True, eq=False)
class Load:
    """A trace as windows. tokens: int64[W, L, E] · steps, step_tokens: float64[W] that each lasts, tokens of one."""

    tokens: IntArray
    steps: FloatArray
    step_tokens: FloatArray

    def __len__(self) -> int:
        return len(self.tokens)


def windows_over_time(session: Session, step_s: float) -> Load:
    """All windows of the selection in time order; those of a count trace that last seconds get as many steps as fit."""
    chosen, top_k = session.selection(), session.meta.top_k
    if isinstance(session.trace, CountTrace):
        keep = selected_windows(session.trace, chosen)
        counts = windows_of_counts(session.trace).pick(keep)
        span, batch = session.trace.span_s[keep], session.trace.batch_tokens[keep]
        steps = np.where(span > 0, np.maximum(span / step_s, 1.0), 1.0)
        return Load(tokens=counts.tokens, steps=steps, step_tokens=np.maximum(batch / steps, 1.0))
    traffic = _all_of(session, session.trace)
    recorded = traffic.judged_windows()
    steps = recorded.steps.astype(np.float64)
    batch = recorded.tokens[:, 0].sum(axis=1) / top_k
    every = traffic.counted_every()
    return Load(tokens=recorded.tokens, steps=steps * every, step_tokens=np.maximum(batch / steps, 1.0))


def stretched(load: Load, request: RebalanceRequest) -> Load:
    """With --hours each window stands for more (or fewer) steps; with --step-tokens steps hold so many on the mean."""
    steps, tokens = load.steps, load.step_tokens
    if request.settings.step_tokens:
        tokens = np.maximum(tokens * request.settings.step_tokens / np.average(tokens, weights=steps), 1.0)
    if request.hours:
        steps = steps * (request.hours * 3600 / request.step_s / steps.sum())
    return Load(tokens=load.tokens, steps=steps, step_tokens=tokens)


def _all_of(session: Session, trace: TokenTrace) -> TokenTraffic:
    return TokenTraffic(
        trace=trace, selection=session.selection(), split=None, windowing=session.bench.windowing, settings={}
    )


def service_of(session: Session, load: Load, first: int, request: RebalanceRequest) -> Service:
    """The cluster as the loops see it; first: windows that those who plan may look at beforehand."""
    mean = float(np.average(load.step_tokens[:first], weights=load.steps[:first]))
    per_slot = mean * session.meta.top_k / session.topology.slots
    return Service(
        topology=session.topology,
        cost=session.bench.cost,
        route=links(session.topology, session.bench.mode),
        top_k=session.meta.top_k,
        expert_bytes=session.shape.expert_bytes,
        nvlink_bytes_per_s=session.hardware.migration.nvlink_bytes_per_s,
        network_bytes_per_s=session.hardware.migration.cross_node_bytes_per_s,
        other_s=request.other_s,
        seed=request.settings.seed,
        slot_cost=_slot_cost(session, per_slot),
    )


def _slot_cost(session: Session, tokens: float) -> SlotCost | None:
    topology = session.topology
    cost = layer_cost(
        session.hardware, session.shape, topology, topology.slots_per_rank, session.bench.mode, session.phase
    )
    return None if cost.expert.reasons else slot_cost(cost, max(1.0, tokens))


def windows_of(service: Service, load: Load, first: int = 0, last: int | None = None) -> Iterator[Window]:
    """The windows from `first` on."""
    for number in range(first, len(load) if last is None else last):
        yield service.window(
            number, load.tokens[number], float(load.steps[number]), max(1, round(float(load.step_tokens[number])))
        )
