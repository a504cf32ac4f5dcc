"""Shares the counts of steps among the replicas of a plan under one rule."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim import kernels
from easybalance_sim.arrays import AnyArray, FloatArray, Int32Array, IntArray, frozen, sealed
from easybalance_sim.errors import UsageError
from easybalance_sim.kernels.reference_replica_sources import WEIGHTED
from easybalance_sim.kernels.reference_replicas import OPTIMUM, WATER
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.replica_choice.rules import COUNTS, ENGINE, SOURCES, Rule, rule_named
from easybalance_sim.simulate.steps.balance import WINDOW_STEPS


@dataclass(frozen=True, kw_only=True)
class Settings:
    """passes: of water-filling over all experts · window, delay: of delayed sensors: steps whose counts are seen, the
    newest `delay` steps ago (1 = the last one) · seed: of drawn replicas and rounding."""

    passes: int = 3
    window: int = WINDOW_STEPS
    delay: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.passes, self.window, self.delay) < 1:
            raise UsageError("passes, window and delay must be ≥ 1", where="replica choice")


DEFAULTS = Settings()


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """took: int32[S, L, P] assignments of each slot · sent: int32[S, L, R, P] of each source rank, None where sources
    were not given · bound: float64[S, L] of the optimum: the lowest busiest rank if assignments could be cut in pieces
    · seconds: of one core, on one rank: what each does for its own assignments all do at the same time."""

    plan: Plan
    took: Int32Array
    sent: Int32Array | None = None
    bound: FloatArray | None = None
    seconds: float = 0.0

    @property
    def loads(self) -> FloatArray:
        """float64[S, L, R] assignments of each rank."""
        return slot_sums(self.took, self.plan)


def choose(
    counts: AnyArray,
    plan: Plan,
    rule: str,
    settings: Settings = DEFAULTS,
    *,
    step: IntArray | None = None,
    node_of_rank: AnyArray | None = None,
) -> Choice:
    """What each replica takes of the counts int[S, L, E] of consecutive steps, or of int[S, L, R, E] by source rank.

    step: int64[S] numbers of the steps, None = 0, 1, … · node_of_rank: int[R], None = one node. Delayed sensors know
    nothing before the first of these steps. Raises `UsageError` for an unknown rule, one that works on tokens, one
    that needs source ranks where none are given, and counts that do not fit the plan.
    """
    one, given = rule_named(rule), np.asarray(counts)
    if one.works_on == ENGINE:
        raise UsageError(f"{rule} chooses token by token, not by counts", fix="compare it on recorded steps")
    if one.works_on == SOURCES and given.ndim != 4:
        raise UsageError(f"{rule} needs the counts of every source rank", fix="give int[S, L, R, E]")
    sources = (plan.ranks,) if given.ndim == 4 else ()
    if given.ndim not in (3, 4) or given.shape[1:] != (plan.layers, *sources, plan.experts):
        raise UsageError(f"counts of shape {given.shape} do not fit the plan", where=plan.policy)
    chooser = Chooser.of(
        plan,
        one,
        given.sum(axis=2) if given.ndim == 4 else given,
        np.arange(len(given)) if step is None else step,
        np.zeros(plan.ranks, np.int32) if node_of_rank is None else node_of_rank,
        settings,
    )
    return chooser.choose(0, len(given), given if given.ndim == 4 else None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chooser:
    """A rule made ready for a plan and a row of steps.

    total: int32[S, L, E] counts of all steps · step: int64[S] · node: int32[R] · start: int32[L, E+1], slot: int32[L,
    P] the replicas of each expert on different ranks · weights: int32[S, L, P] of a rule that follows earlier steps ·
    loads: int64[H+S, L, R] of H steps that nobody saw and those that were chosen for.
    """

    plan: Plan
    rule: Rule
    settings: Settings
    total: Int32Array
    step: IntArray
    node: Int32Array
    start: Int32Array
    slot: Int32Array
    weights: Int32Array
    loads: IntArray

    @classmethod
    def of(
        cls, plan: Plan, rule: Rule, total: AnyArray, step: AnyArray, node: AnyArray, settings: Settings = DEFAULTS
    ) -> Chooser:
        """total: int[S, L, E] counts of all steps that will be chosen for · step: int[S] · node: int[R]."""
        counts = frozen(total, np.int32)
        start, slot = replicas_apart(plan)
        made = cls(
            plan=plan,
            rule=rule,
            settings=settings,
            total=counts,
            step=frozen(step, np.int64),
            node=frozen(node, np.int32),
            start=start,
            slot=slot,
            weights=frozen(np.zeros((0, plan.layers, plan.slots), np.int32)),
            loads=np.zeros((settings.window + settings.delay + len(counts), plan.layers, plan.ranks), np.int64),
        )
        if (rule.works_on, rule.code) != (SOURCES, WEIGHTED):
            return made
        seen = frozen(seen_counts(counts, settings.window, settings.delay), np.int32)
        return replace(made, weights=made._split(seen, made.step, WATER)[0])

    def choose(self, first: int, end: int, by_source: AnyArray | None = None) -> Choice:
        """Steps in places first..end-1, in order where a sensor is delayed; by_source: int[s, L, R, E] their counts,
        which a rule that works on them needs."""
        begin = time.thread_time()
        sent, bound, alone = None, None, begin
        if self.rule.works_on == COUNTS:
            took, bound = self._split(self.total[first:end], self.step[first:end], self.rule.code)
            alone = time.thread_time()
            if by_source is not None:
                sent = self._shared(frozen(by_source, np.int32), took)
        elif by_source is not None:
            sent = self._by_source(first, end, frozen(by_source, np.int32))
            took = sealed(sent.sum(axis=2, dtype=np.int32))
            alone = begin if self.rule.everywhere else time.thread_time()
        else:
            raise UsageError(f"{self.rule.name} needs the counts of every source rank", fix="give int[S, L, R, E]")
        seconds = alone - begin + (time.thread_time() - alone) / self.plan.ranks
        return Choice(plan=self.plan, took=took, sent=sent, bound=bound, seconds=seconds)

    def _split(self, counts: Int32Array, step: IntArray, code: int) -> tuple[Int32Array, FloatArray | None]:
        took = np.zeros((*counts.shape[:2], self.plan.slots), np.int32)
        bound = np.zeros(counts.shape[:2])
        kernels.load().split_counts(
            counts, step, self.start, self.slot, self.plan.rank_of_slot, self.plan.ranks, code, self.settings.passes,
            took, bound,
        )  # fmt: skip
        return sealed(took), sealed(bound) if code == OPTIMUM else None

    def _shared(self, by_source: Int32Array, took: Int32Array) -> Int32Array:
        sent = np.zeros((*by_source.shape[:3], self.plan.slots), np.int32)
        kernels.load().share_by_source(by_source, took, self.start, self.slot, self.plan.rank_of_slot, self.node, sent)
        return sealed(sent)

    def _by_source(self, first: int, end: int, by_source: Int32Array) -> Int32Array:
        sent = np.zeros((*by_source.shape[:3], self.plan.slots), np.int32)
        earlier = len(self.loads) - len(self.total)
        kernels.load().split_by_source(
            by_source, self.step[first:end], self.start, self.slot, self.plan.rank_of_slot, self.node, self.rule.code,
            self.settings.seed, self.weights[first:end], self.loads[first : earlier + end], self.settings.window,
            self.settings.delay, sent,
        )  # fmt: skip
        return sealed(sent)


def replicas_apart(plan: Plan) -> tuple[Int32Array, Int32Array]:
    """int32[L, E+1] and int32[L, P] as `Plan.replica_start` and `replica_slot`, without the second replica of an expert
    on one rank: it would share nothing."""
    rank = plan.rank_of_slot[plan.replica_slot]
    expert = np.take_along_axis(plan.expert_of_slot, plan.replica_slot, axis=1)
    again = np.zeros(rank.shape, np.bool_)
    again[:, 1:] = (rank[:, 1:] == rank[:, :-1]) & (expert[:, 1:] == expert[:, :-1])
    kept = np.argsort(again, axis=1, kind="stable")
    slots = np.take_along_axis(plan.replica_slot, kept, axis=1)
    before = np.concatenate([np.zeros((plan.layers, 1), np.int64), np.cumsum(again, axis=1)], axis=1)
    start = plan.replica_start - np.take_along_axis(before, plan.replica_start.astype(np.int64), axis=1)
    return frozen(start, np.int32), frozen(slots, np.int32)


def seen_counts(counts: AnyArray, window: int, delay: int) -> IntArray:
    """int64[S, L, E] sums of the counts int[S, L, E] over `window` steps, the newest `delay` steps before; of fewer
    where fewer came before."""
    total = np.concatenate([np.zeros((1, *counts.shape[1:]), np.int64), np.cumsum(counts, axis=0, dtype=np.int64)])
    end = np.maximum(np.arange(len(counts)) - delay + 1, 0)
    sums: IntArray = total[end] - total[np.maximum(end - window, 0)]
    return sums


def slot_sums(took: AnyArray, plan: Plan) -> FloatArray:
    """float64[S, L, R] sums over the slots of each rank."""
    sums: FloatArray = np.add.reduceat(took, plan.slot_start[:-1], axis=2, dtype=np.float64)
    return sealed(sums)
