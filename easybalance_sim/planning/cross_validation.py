"""What a policy's plans keep of their balance on windows that they were not made from, measured inside the fit side.

A search has seen the windows of its own fit; its figures there flatter it. So every policy plans again on parts of the
fit side and is judged on the others (see `load.folds`): what it shows there is what candidates are compared by and what
the gate is promised. A policy that takes too long for that is charged the optimism of a search: the mean difference
between the windows judged on and the windows planned on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.load.folds import Fold
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.replay.expected import even_imbalance

PROPOSALS = 300_000
"""Per layer of a fold's search; half the windows are not worth more."""
SAME, NEW = "interleaved", "blocked"
"""Held parts with the topics of the fit part, and with others."""


STAND_IN = "window_search"
"""Its optimism is taken for that of policies that are not planned again."""
WORST_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Rank imbalance over windows × layers. tail: mean of the worst 5 %, which small windows do not quantise as they do
    the P99."""

    mean: float
    p99: float
    tail: float

    @classmethod
    def of(cls, ratios: FloatArray) -> Balance:
        """Of float64[...] ratios, NaN where there is no traffic; all NaN without any."""
        known = np.sort(ratios[np.isfinite(ratios)])
        if not len(known):
            return cls(mean=math.nan, p99=math.nan, tail=math.nan)
        worst = known[-max(1, round(WORST_SHARE * len(known))) :]
        return cls(mean=float(known.mean()), p99=float(np.quantile(known, 0.99)), tail=float(worst.mean()))

    def __add__(self, other: Balance) -> Balance:
        return Balance(mean=self.mean + other.mean, p99=self.p99 + other.p99, tail=self.tail + other.tail)

    def __sub__(self, other: Balance) -> Balance:
        return Balance(mean=self.mean - other.mean, p99=self.p99 - other.p99, tail=self.tail - other.tail)

    def times(self, factor: float) -> Balance:
        """Every figure times `factor`."""
        return Balance(mean=factor * self.mean, p99=factor * self.p99, tail=factor * self.tail)

    def at_least(self, floor: float) -> Balance:
        """With no figure under `floor`."""
        return Balance(mean=max(self.mean, floor), p99=max(self.p99, floor), tail=max(self.tail, floor))

    def to_dict(self) -> dict[str, float]:
        """`mean` and `p99`, rounded, for a report."""
        return {"mean": round(self.mean, 6), "p99": round(self.p99, 6)}


NO_OPTIMISM = Balance(mean=0.0, p99=0.0, tail=0.0)


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A plan's policy on folds: fitted on a part and judged on the other, mean over the folds of each kind.

    optimism: how much worse the held part of interleaved folds is than the part planned on, 0 at least · held: by kind
    of fold.
    """

    optimism: Balance
    held: Mapping[str, Balance]

    @property
    def expected(self) -> Balance:
        """On other windows, of the plan made from the whole fit side.

        What a plan shows too much and keeps too little both shrink as 1 / windows, so twice the windows of a fold take
        a fourth of the optimism off the held figures.
        """
        return self.held[SAME] - self.optimism.times(0.25)


def validate(
    plans: Sequence[Plan], problem: Problem, folds: Sequence[Fold], skip: Sequence[str] = ()
) -> dict[str, Validation]:
    """By name of plan, for the plans whose policy has one of that name on every fold; empty without folds.

    skip: policies that take too long to plan again; with one of them among the plans `STAND_IN` is planned too. Where a
    policy does not apply on a fold, `eplb` stands in for it, as it would in a run. Judged under an even split.
    """
    advance = problem.progress("cross-validating", Amount(len(folds), "folds")) if folds else None
    names = {plan.policy for plan in plans if plan.policy.partition("@")[0] not in skip}
    if len(names) < len({plan.policy for plan in plans}):
        names.add(STAND_IN)
    seen: dict[str, list[tuple[Balance, Balance]]] = {name: [] for name in sorted(names)}
    for fold in folds:
        made = _plans_of(fold, {name.partition("@")[0] for name in names}, problem)
        for name, figures in seen.items():
            plan = made.get(name, made.get(name.partition("@")[0]))
            if plan is not None:
                figures.append((_balance(plan, fold.fit, problem), _balance(plan, fold.held, problem)))
        if advance is not None:
            advance(1)
    whole = {name: figures for name, figures in seen.items() if folds and len(figures) == len(folds)}
    known = {name: _summary(figures, folds) for name, figures in whole.items()}
    return {name: one for name, one in known.items() if all(math.isfinite(each.p99) for each in one.held.values())}


def _plans_of(fold: Fold, names: set[str], problem: Problem) -> dict[str, Plan]:
    """The plans of the named policies for the fit part, by name; under a policy's own name the stand-in for it."""
    effort = problem.effort
    wanted = min(effort.proposals or PROPOSALS, PROPOSALS)
    part = replace(
        problem,
        forecast=fold.fit.mean(axis=0),
        windows=fold.fit,
        finer=None if problem.finer is None or len(fold.finer) == 0 else fold.finer,
        rebatched=fold.rebatched,
        effort=Effort(proposals=wanted, max_moves=effort.max_moves, move_price=effort.move_price),
        progress=policies.silent,
    )
    found: dict[str, Plan] = {}
    for name in sorted(names):
        try:
            found |= {plan.policy: plan for plan in policies.make_all(name, part)}
        except NotApplicable:
            found[name] = policies.make("eplb", part)
    return found


def _balance(plan: Plan, tokens: IntArray, problem: Problem) -> Balance:
    return Balance.of(even_imbalance(tokens, plan, problem.topology.speed))


def _summary(figures: Sequence[tuple[Balance, Balance]], folds: Sequence[Fold]) -> Validation:
    same = [pair for pair, fold in zip(figures, folds, strict=True) if not fold.new_topics]
    new = [pair for pair, fold in zip(figures, folds, strict=True) if fold.new_topics]
    held = {kind: _mean([pair[1] for pair in pairs]) for kind, pairs in ((SAME, same), (NEW, new))}
    optimism = held[SAME] - _mean([pair[0] for pair in same])
    return Validation(optimism=optimism.at_least(0.0), held=held)


def _mean(several: Sequence[Balance]) -> Balance:
    figures = np.mean([(one.mean, one.p99, one.tail) for one in several], axis=0)
    return Balance(mean=float(figures[0]), p99=float(figures[1]), tail=float(figures[2]))
