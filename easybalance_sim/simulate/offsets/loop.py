"""The closed loop: step by step, a mechanism sees the loads of steps that have run and acts on the next one.

Recorded scores stand in for the model: balance follows the real run to 0.01 in the step mean (measured on a 14 M model
over 61 runs); that changed experts change the scores of later layers is not seen, which adds some 2 to 4 points to the
share of assignments that differ in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, BoolArray, FloatArray, Int32Array, frozen, sealed
from easybalance_sim.errors import EbsimError
from easybalance_sim.kernels.reference_routing import NONE
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.quality import Quality
from easybalance_sim.simulate.offsets.scores import Scores
from easybalance_sim.simulate.steps.balance import WINDOW_STEPS, Balance, balance

WARM_UP = 40
"""Steps in which a loop settles: run, not judged."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """How a mechanism senses. delay: steps from one that ran to the first that knows it, 1 = the newest that ran is
    known · window: steps that are summed · warm_up: first steps that are run and not judged."""

    delay: int = 1
    window: int = WINDOW_STEPS
    warm_up: int = WARM_UP

    def __post_init__(self) -> None:
        if min(self.delay, self.window) < 1 or self.warm_up < 0:
            raise EbsimError("delay and window must be 1 step or more, the warm-up 0 or more", where="sensor")


class Sensor:
    """Loads of executed steps, as far as they are known: what a mechanism may look at, and nothing else.

    step: the place of the step that is about to run · shares: float64[L, E, R] of an expert's tokens on each rank.
    """

    def __init__(self, steps: int, plan: Plan, loop: Loop) -> None:
        self.loop, self.step, self.shares = loop, 0, rank_shares(plan)
        self._counts = np.zeros((steps + 1, plan.layers, plan.experts))
        self._loads = np.zeros((steps + 1, plan.layers, plan.ranks))

    @property
    def known(self) -> int:
        """Executed steps whose loads are known."""
        return max(0, self.step - self.loop.delay + 1)

    def rank_loads(self, steps: int = 0) -> FloatArray:
        """float64[L, R] assignments of each rank in the last `steps` known steps (0 = the sensor's window)."""
        return self._last(self._loads, steps)

    def expert_loads(self, steps: int = 0) -> FloatArray:
        """float64[L, E] assignments of each expert, likewise."""
        return self._last(self._counts, steps)

    def _last(self, sums: FloatArray, steps: int) -> FloatArray:
        known = self.known
        found: FloatArray = sums[known] - sums[max(0, known - (steps or self.loop.window))]
        return found

    def executed(self, counts: AnyArray, loads: FloatArray) -> None:
        """The step has run with these counts [L, E] and rank loads [L, R]."""
        self._counts[self.step + 1] = self._counts[self.step] + counts
        self._loads[self.step + 1] = self._loads[self.step] + loads
        self.step += 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Nudge:
    """What acts on a router in one step: experts are chosen by score · factor - offset among the allowed ones.

    offset, factor: float32[L, E], None = 0 and 1 · allowed: bool[L, E], None = all.
    """

    offset: AnyArray | None = None
    factor: AnyArray | None = None
    allowed: BoolArray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTokens:
    """The t tokens of one step. index: its place · first: their place among all tokens · scores: float32[t, L, E], -inf
    = not known · recorded: int32[t, L, K] experts, gates: float32[t, L, K] theirs · workload, source_rank: int16[t]."""

    index: int
    first: int
    scores: AnyArray
    recorded: Int32Array
    gates: AnyArray
    workload: AnyArray
    source_rank: AnyArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Sent:
    """Where assignments went. experts: int32[t, L, K], -1 = dropped · ranks: int32[t, L, K] of the replica that was
    chosen, -1 with the dropped; None = replicas of an expert share evenly."""

    experts: Int32Array
    ranks: Int32Array | None = None


class Acting:
    """One run of a mechanism; this one leaves all as it is."""

    def nudge(self, sensor: Sensor) -> Nudge | None:
        """What acts on the router in step `sensor.step`; None = nothing."""
        return None

    def act(self, step: StepTokens, experts: Int32Array) -> Sent:
        """Where the step's assignments go, whose tokens chose `experts`: int32[t, L, K]."""
        return Sent(experts=experts)


class Mechanism(Protocol):
    """Something that acts on routing. `start` begins a run under a plan, so that runs share nothing."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        """A new run."""
        ...


@dataclass(frozen=True, kw_only=True)
class Untouched:
    """No mechanism: recorded experts, even replicas."""

    name: str = "none"

    def start(self, plan: Plan, scores: Scores, loop: Loop) -> Acting:
        """See `Mechanism`."""
        return Acting()


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """What became of all steps under a mechanism.

    counts: int32[S, L, E] · loads: float64[S, L, R] · quality: of the judged steps, all layers and workloads ·
    by_layer, by_workload: the same apart · experts: int32[T, L, K] where they were asked for · dropped: int64[S].
    """

    mechanism: str
    loop: Loop
    counts: Int32Array
    loads: FloatArray
    dropped: AnyArray
    quality: Quality
    by_layer: tuple[Quality, ...]
    by_workload: dict[str, Quality]
    experts: Int32Array | None = None

    @property
    def judged(self) -> FloatArray:
        """float64[S - warm-up, L, R] loads of the judged steps."""
        return self.loads[self.loop.warm_up :]

    @cached_property
    def balance(self) -> Balance:
        """Of the judged steps."""
        return balance(self.judged)

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {
            "mechanism": self.mechanism,
            "balance": self.balance.to_dict(),
            "quality": self.quality.to_dict(),
            "quality_by_layer": [one.to_dict() for one in self.by_layer],
            "quality_by_workload": {name: one.to_dict() for name, one in self.by_workload.items()},
        }


def rank_shares(plan: Plan) -> FloatArray:
    """float64[L, E, R] share of an expert's tokens on each rank when its replicas share evenly."""
    shares = np.zeros((plan.layers, plan.experts, plan.ranks))
    for layer, ids in enumerate(plan.expert_of_slot):
        np.add.at(shares[layer], (ids, plan.rank_of_slot), 1.0 / plan.replicas[layer, ids])
    return sealed(shares)


def run(
    mechanism: Mechanism,
    scores: Scores,
    plan: Plan,
    loop: Loop | None = None,
    *,
    keep_experts: bool = False,
    advance: Callable[[int], None] = lambda steps: None,
) -> Outcome:
    """Every step of `scores.steps` in turn under a mechanism. advance: told of every executed step.

    Raises `EbsimError` for a plan of another model, for steps that are all warm-up, and when a mechanism loses
    assignments.
    """
    loop = loop or Loop()
    steps = scores.steps
    _require_fit(scores, plan, loop)
    acting, sensor = mechanism.start(plan, scores, loop), Sensor(len(steps), plan, loop)
    tally = _Tally(scores, plan, keep_experts)
    for index in range(len(steps)):
        tokens = _tokens(scores, index)
        sent = acting.act(tokens, _chosen(scores, tokens, acting.nudge(sensor)))
        counts, loads = tally.add(tokens, sent, sensor.shares, judged=index >= loop.warm_up)
        sensor.executed(counts, loads)
        advance(1)
    return tally.outcome(mechanism.name, loop)


def _require_fit(scores: Scores, plan: Plan, loop: Loop) -> None:
    meta = scores.steps.meta
    if (plan.layers, plan.experts) != (len(meta.layers), meta.experts):
        raise EbsimError(
            f"the plan has {plan.layers} layers of {plan.experts} experts, the trace {len(meta.layers)} of "
            f"{meta.experts}",
            where=plan.policy,
        )
    if len(scores.steps) <= loop.warm_up:
        raise EbsimError(
            f"the trace has {len(scores.steps)} steps, of which the first {loop.warm_up} only warm up the loop",
            fix="take more steps",
        )


def _tokens(scores: Scores, index: int) -> StepTokens:
    steps = scores.steps
    first, end = int(steps.start[index]), int(steps.start[index + 1])
    return StepTokens(
        index=index,
        first=first,
        scores=scores.values(first, end),
        recorded=scores.recorded[first:end],
        gates=scores.gates[first:end],
        workload=steps.workload[first:end],
        source_rank=steps.source_rank[first:end],
    )


def _chosen(scores: Scores, tokens: StepTokens, nudge: Nudge | None) -> Int32Array:
    if nudge is None:
        return tokens.recorded
    shape = (scores.layers, scores.experts)
    offset = np.zeros(shape) if nudge.offset is None else nudge.offset
    factor = np.ones(shape) if nudge.factor is None else nudge.factor
    allowed = np.ones(shape, np.bool_) if nudge.allowed is None else nudge.allowed
    return scores.routed(
        tokens.scores, tokens.first, frozen(offset, np.float32), frozen(factor, np.float32), frozen(allowed, np.bool_)
    )


class _Tally:
    """Sums of a run."""

    def __init__(self, scores: Scores, plan: Plan, keep_experts: bool) -> None:
        steps = scores.steps
        self.scores, self.plan = scores, plan
        self.counts = np.zeros((len(steps), plan.layers, plan.experts), np.int32)
        self.loads = np.zeros((len(steps), plan.layers, plan.ranks))
        self.dropped = np.zeros(len(steps), np.int64)
        self.sums = np.zeros((max(1, len(steps.workloads)), plan.layers, 8))
        self.experts = np.empty(scores.recorded.shape, np.int32) if keep_experts else None

    def add(self, tokens: StepTokens, sent: Sent, shares: FloatArray, *, judged: bool) -> tuple[AnyArray, FloatArray]:
        """Counts [L, E] and rank loads [L, R] of a step; raises `EbsimError` unless every assignment is in them."""
        counts = _histogram(sent.experts, self.plan.experts)
        if sent.ranks is None:
            loads: FloatArray = np.matmul(counts[:, None, :].astype(np.float64), shares)[:, 0]
        else:
            loads = _histogram(sent.ranks, self.plan.ranks).astype(np.float64)
        dropped = int((sent.experts == NONE).sum())
        self._require_all(tokens, sent, counts, loads, dropped)
        self.counts[tokens.index], self.loads[tokens.index], self.dropped[tokens.index] = counts, loads, dropped
        experts = frozen(sent.experts, np.int32)
        if judged:
            kernels.load().compare_routing(
                experts, tokens.recorded, tokens.scores, self.scores.bias, tokens.gates, tokens.workload, self.sums
            )
        if self.experts is not None:
            self.experts[tokens.first : tokens.first + len(experts)] = experts
        return counts, loads

    def _require_all(self, tokens: StepTokens, sent: Sent, counts: AnyArray, loads: FloatArray, dropped: int) -> None:
        wanted = tokens.recorded.size
        there = (sent.experts.shape == tokens.recorded.shape, int(counts.sum()) + dropped == wanted)
        if not all(there) or abs(float(loads.sum()) - (wanted - dropped)) > 1e-6 * max(1, wanted):
            raise EbsimError(
                f"{wanted} assignments became {int(counts.sum())}, {dropped} dropped, {float(loads.sum()):g} on ranks",
                where=f"step {tokens.index}",
            )

    def outcome(self, name: str, loop: Loop) -> Outcome:
        """All that was added."""
        names, k = self.scores.steps.workloads, self.scores.steps.meta.top_k
        return Outcome(
            mechanism=name,
            loop=loop,
            counts=sealed(self.counts),
            loads=sealed(self.loads),
            dropped=sealed(self.dropped),
            quality=Quality.of(self.sums.sum(axis=(0, 1)), k),
            by_layer=tuple(Quality.of(row, k) for row in self.sums.sum(axis=0)),
            by_workload={n: Quality.of(row.sum(axis=0), k) for n, row in zip(names, self.sums, strict=True)},
            experts=None if self.experts is None else sealed(self.experts),
        )


def _histogram(ids: AnyArray, n: int) -> AnyArray:
    """int64[L, n] how often each id ≥ 0 occurs in ids: int[t, L, K]."""
    layers = ids.shape[1]
    place = ids + (np.arange(layers) * (n + 1))[:, None] + 1
    counts: AnyArray = np.bincount(place.ravel(), minlength=layers * (n + 1)).reshape(layers, n + 1)
    return counts[:, 1:]
