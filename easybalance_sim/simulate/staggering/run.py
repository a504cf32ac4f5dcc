"""Cross-layer staggering as a what-if: labels fitted on past steps, judged on later ones.

Labels change no layer's balance, so what waits for every layer gains exactly nothing. Who gains are ranks that may
drift inside a step and resources that integrate over layers (`timing`, `totals`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import keep_slots
from easybalance_sim.simulate.staggering import timing
from easybalance_sim.simulate.staggering.moves import MoveRow, ways
from easybalance_sim.simulate.staggering.relabel import (
    Freedom,
    as_is,
    at_random,
    carried,
    freedom,
    hottest_together,
    relabelled,
    search,
)
from easybalance_sim.simulate.staggering.totals import arrivals, from_other_nodes, memory_bytes
from easybalance_sim.simulate.steps.balance import PERCENTILE, WINDOW_STEPS, windows_apart
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads

STAGES = 7
"""Times that `stagger` reports progress."""
PAIR_STEPS = 2
"""Steps whose loads labels for micro-batches are fitted on: these wait for single steps, not for windows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """past: steps that labels are fitted on · judged: later ones · inside_nodes: labels are exchanged inside a node
    only, so that no token crosses another network link · window: steps, apart from each other · expert_bytes: weights
    of an expert in one layer, token_bytes: an activation on its way; 0 = unknown, then network totals are in
    assignments and memory has none · in_force: the plan that the ranks hold now, None = `plan` itself · draws: of
    random labels."""

    plan: Plan
    past: RecordedSteps
    judged: RecordedSteps
    topology: Topology
    inside_nodes: bool = False
    window: int = WINDOW_STEPS
    expert_bytes: float = 0.0
    token_bytes: float = 0.0
    in_force: Plan | None = None
    draws: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name, steps in (("past", self.past), ("judged", self.judged)):
            got, wanted = (steps.layers, steps.meta.experts), (self.plan.layers, self.plan.experts)
            if got != wanted:
                raise UsageError(f"{name} steps have (layers, experts) = {got}, the plan {wanted}", where="staggering")
        if len(self.judged) < PAIR_STEPS:
            raise UsageError(
                f"{len(self.judged)} judged steps, two micro-batches need {PAIR_STEPS}",
                where="staggering",
                fix="judge more steps",
            )


@dataclass(frozen=True, kw_only=True)
class Row:
    """One labelling, judged. heat: max/mean of ranks' windows over all layers, mean and 99th percentile · barrier,
    micro_batches, one_ahead, unbound: mean over steps of a step's time over its balanced time (see `timing`) · memory,
    network: max/mean of ranks' bytes in a window, mean over windows; None where unknown or on one node · cross_node:
    bytes that each node takes in from others in all judged windows, assignments when token_bytes is unknown ·
    fitted_on_judged: it has seen the steps it is judged on: a limit, not a result · draws: labellings that the figures
    are the mean of."""

    labels: str
    heat_mean: float
    heat_p99: float
    barrier: float
    micro_batches: float
    one_ahead: float
    unbound: float
    memory: float | None = None
    network: float | None = None
    cross_node: tuple[float, ...] | None = None
    fitted_on_judged: bool = False
    draws: int = 1

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        cross_node = None if self.cross_node is None else list(self.cross_node)
        return asdict(self) | {"cross_node": cross_node}


@dataclass(frozen=True, kw_only=True, eq=False)
class Staggering:
    """rows: as is · worst · random · mean · pairs (fitted on two neighbouring layers together, for micro-batches) ·
    windows · oracle · barrier_gain: change of the barrier's time through the labels of `windows`, 0 by construction ·
    moves: what it takes to get there · plan: staggered on windows, lossless like the one it came from."""

    policy: str
    inside_nodes: bool
    window: int
    window_s: float
    rows: tuple[Row, ...]
    barrier_gain: float
    moves: tuple[MoveRow, ...]
    plan: Plan

    def row(self, labels: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.labels == labels)

    def to_dict(self) -> dict[str, Any]:
        """For reports; without the plan, which is written as a plan."""
        return {
            "policy": self.policy,
            "inside_nodes": self.inside_nodes,
            "window_steps": self.window,
            "window_s": self.window_s,
            "rows": [row.to_dict() for row in self.rows],
            "barrier_gain": self.barrier_gain,
            "moves": [row.to_dict() for row in self.moves],
        }


def stagger(request: Request, advance: Callable[[int], None] = lambda stages: None) -> Staggering:
    """The table of one plan; deterministic per seed. advance: called `STAGES` times.

    Raises `UsageError` and `PlanError` when steps, plan and cluster do not belong together.
    """
    free = freedom(request.plan, request.topology, inside_nodes=request.inside_nodes)
    past = _loads(request.past, request.plan, request.topology)
    windows = windows_apart(past, request.window)
    judge = _Judge(request)
    advance(1)
    labels: dict[str, Sequence[IntArray]] = {
        "as is": [as_is(*past.shape[1:])],
        "worst": [hottest_together(past, free)],
        "random": _random(request, free),
    }
    for name, sample, pairs in (
        ("mean", windows.sum(axis=0, keepdims=True), False),
        ("pairs", windows_apart(past, PAIR_STEPS), True),
        ("windows", windows, False),
        ("oracle", windows_apart(judge.loads, request.window), False),
    ):
        labels[name] = [search(sample, free, seed=request.seed, pairs=pairs)]
        advance(1)
    rows = tuple(judge.row(name, found) for name, found in labels.items())
    advance(1)
    best = labels["windows"][0]
    moves = _moves(request, windows, best, judge)
    advance(1)
    gain = timing.barrier(judge.loads).sum() - timing.barrier(carried(judge.loads, best)).sum()
    return Staggering(
        policy=request.plan.policy,
        inside_nodes=request.inside_nodes,
        window=request.window,
        window_s=request.window * request.judged.step_s,
        rows=rows,
        barrier_gain=float(gain / judge.balanced.sum()),
        moves=moves,
        plan=_renamed(relabelled(request.plan, best), request.in_force),
    )


def staggered(
    plan: Plan,
    past: RecordedSteps,
    topology: Topology,
    *,
    inside_nodes: bool = False,
    window: int = WINDOW_STEPS,
    in_force: Plan | None = None,
    seed: int = 0,
) -> Plan:
    """The plan with its labels fitted on windows of past steps: lossless, every layer as even as before.

    in_force: experts that stay on their rank keep the slots that they have there.
    """
    sample = windows_apart(_loads(past, plan, topology), window)
    found = search(sample, freedom(plan, topology, inside_nodes=inside_nodes), seed=seed)
    return _renamed(relabelled(plan, found), in_force)


def _renamed(plan: Plan, in_force: Plan | None) -> Plan:
    named = replace(plan, policy=f"{plan.policy}+staggered")
    return named if in_force is None else keep_slots(in_force, named)


def _loads(steps: RecordedSteps, plan: Plan, topology: Topology) -> FloatArray:
    """float64[S, L, R] rank loads as the time they take on ranks of unequal speed."""
    loads: FloatArray = rank_loads(steps.counts, plan) * (topology.speed.mean() / topology.speed)
    return loads


def _random(request: Request, free: Freedom) -> list[IntArray]:
    source = np.random.default_rng([request.seed, 1])
    return [at_random(request.plan.layers, free, source) for _ in range(max(1, request.draws))]


def _moves(request: Request, windows: FloatArray, best: IntArray, judge: _Judge) -> tuple[MoveRow, ...]:
    plan, topology = request.plan, request.topology
    in_force = plan if request.in_force is None else request.in_force
    inside, seed = request.inside_nodes, request.seed
    found = []
    for way in ways(plan, in_force, windows, best, topology, inside_nodes=inside, seed=seed):
        heat = judge.heat(_loads(request.judged, way.plan, topology))
        found.append(
            MoveRow(
                labels=way.labels,
                moves=way.moves,
                cross_node_moves=way.cross_node_moves,
                layers=way.layers,
                heat_mean=heat[0],
                heat_p99=heat[1],
            )
        )
    return tuple(found)


class _Judge:
    """Everything about the judged steps that labels only deal out anew. loads: float64[S, L, R] · balanced: float64[S]
    time of a step when every rank had the mean load in every layer · bytes of ranks in windows, None where unknown."""

    def __init__(self, request: Request) -> None:
        plan, steps = request.plan, request.judged
        self._window, self._node = request.window, request.topology.node_of_rank
        self.loads = _loads(steps, plan, request.topology)
        self.balanced = steps.counts.sum(axis=(1, 2), dtype=np.float64) / plan.ranks
        self._in_window = windows_apart(self.balanced, request.window)
        self._memory: FloatArray | None = None
        self._arriving: FloatArray | None = None
        if request.expert_bytes > 0 and request.token_bytes > 0:
            spent = memory_bytes(steps.counts, plan, request.expert_bytes, request.token_bytes)
            self._memory = windows_apart(spent, request.window)
        if request.topology.nodes > 1:
            unit = request.token_bytes or 1.0
            self._arriving = unit * arrivals(steps, plan, self._node, request.window)

    def row(self, name: str, labels: Sequence[IntArray]) -> Row:
        """The figures of one labelling, the mean of several."""
        each = [self._figures(one) for one in labels]
        crossing = [self._crossing(one) for one in labels]
        heat, p99, barrier, micro, ahead, unbound = (float(np.mean(v)) for v in zip(*each, strict=True))
        networks, nodes = zip(*crossing, strict=True)
        return Row(
            labels=name,
            heat_mean=heat,
            heat_p99=p99,
            barrier=barrier,
            micro_batches=micro,
            one_ahead=ahead,
            unbound=unbound,
            memory=self._memory_ratio(labels),
            network=None if networks[0] is None else float(np.mean(networks)),
            cross_node=None if nodes[0] is None else tuple(float(v) for v in np.mean(nodes, axis=0)),
            fitted_on_judged=name == "oracle",
            draws=len(labels),
        )

    def heat(self, loads: FloatArray) -> tuple[float, float]:
        """(mean, 99th percentile) of max/mean of ranks' windows over all layers."""
        busiest = windows_apart(loads, self._window).sum(axis=1).max(axis=1)
        ratio = busiest / np.maximum(self._in_window, 1e-300)
        return float(ratio.mean()), float(np.percentile(ratio, PERCENTILE))

    def _figures(self, labels: IntArray) -> tuple[float, ...]:
        loads = carried(self.loads, labels)
        first, second = timing.paired(loads)
        both = np.add(*timing.paired(self.balanced))
        times = (
            (timing.barrier(loads), self.balanced),
            (timing.micro_batches(first, second), both),
            (timing.drifting(loads), self.balanced),
            (timing.unbound(loads), self.balanced),
        )
        return (*self.heat(loads), *(float((time / balanced).mean()) for time, balanced in times))

    def _memory_ratio(self, labels: Sequence[IntArray]) -> float | None:
        if self._memory is None:
            return None
        totals = [carried(self._memory, one).sum(axis=1) for one in labels]
        return float(np.mean([_unevenness(total) for total in totals]))

    def _crossing(self, labels: IntArray) -> tuple[float | None, FloatArray | None]:
        """(unevenness of ranks, float64[N] what nodes take in)."""
        if self._arriving is None:
            return None, None
        ranks = from_other_nodes(carried(self._arriving, labels), self._node)
        taken_in: FloatArray = np.zeros(int(self._node.max()) + 1)
        np.add.at(taken_in, self._node, ranks.sum(axis=0))
        return _unevenness(ranks), taken_in


def _unevenness(totals: FloatArray) -> float:
    """Mean over windows of max/mean over ranks of float64[W, R]; 1 without any."""
    mean = totals.mean(axis=1)
    busy = mean > 0
    return float((totals.max(axis=1)[busy] / mean[busy]).mean()) if busy.any() else 1.0
