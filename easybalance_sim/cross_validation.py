"""What a policy's plans keep of their balance on windows that they were not made from, measured inside the fit side.

A search has seen the windows of its own fit; its figures there flatter it. So every policy plans again on parts of the
fit side and is judged on the others (see `load.folds`). The mean difference between the two is its optimism, which is
added to its fit figures before plans are compared and before anything is promised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.load.folds import Fold
from easybalance_sim.plan.plan import Plan
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.replay.expected import even_imbalance

PROPOSALS = 300_000
"""Per layer of a fold's search; half the windows are not worth more."""
SAME, NEW = "interleaved", "blocked"
"""Held parts with the topics of the fit part, and with others."""


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Rank imbalance over windows × layers."""

    mean: float
    p99: float

    def __add__(self, other: Balance) -> Balance:
        return Balance(mean=self.mean + other.mean, p99=self.p99 + other.p99)

    def __sub__(self, other: Balance) -> Balance:
        return Balance(mean=self.mean - other.mean, p99=self.p99 - other.p99)

    def to_dict(self) -> dict[str, float]:
        """`mean` and `p99`, rounded, for a report."""
        return {"mean": round(self.mean, 6), "p99": round(self.p99, 6)}


@dataclass(frozen=True, kw_only=True)
class Validation:
    """A plan's policy on folds: fitted on a part and judged on the other, mean over the folds of each kind.

    optimism: how much worse the held part of interleaved folds is than the part planned on · held: by kind of fold.
    """

    optimism: Balance
    held: Mapping[str, Balance]


def validate(
    plans: Sequence[Plan], problem: Problem, folds: Sequence[Fold], skip: Sequence[str] = ()
) -> dict[str, Validation]:
    """By name of plan, for the plans whose policy has one of that name on every fold; empty without folds.

    skip: policies that take too long to plan again. Where one does not apply on a fold, `eplb` stands in for it, as
    it would in a run. Judged under an even split.
    """
    advance = problem.progress("cross-validating", len(folds)) if folds else None
    names = {plan.policy for plan in plans if plan.policy.partition("@")[0] not in skip}
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
    return {name: _summary(figures, folds) for name, figures in whole.items()}


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


def _balance(plan: Plan, tokens: np.typing.NDArray[np.int64], problem: Problem) -> Balance:
    ratio = even_imbalance(tokens, plan, problem.topology.speed)
    return Balance(mean=float(np.nanmean(ratio)), p99=float(np.nanquantile(ratio, 0.99)))


def _summary(figures: Sequence[tuple[Balance, Balance]], folds: Sequence[Fold]) -> Validation:
    same = [pair for pair, fold in zip(figures, folds, strict=True) if not fold.new_topics]
    new = [pair for pair, fold in zip(figures, folds, strict=True) if fold.new_topics]
    held = {kind: _mean([pair[1] for pair in pairs]) for kind, pairs in ((SAME, same), (NEW, new))}
    return Validation(optimism=held[SAME] - _mean([pair[0] for pair in same]), held=held)


def _mean(several: Sequence[Balance]) -> Balance:
    return Balance(mean=float(np.mean([one.mean for one in several])), p99=float(np.mean([one.p99 for one in several])))
