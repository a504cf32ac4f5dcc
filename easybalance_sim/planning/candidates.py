"""The plans that compete in a run: proposed, scored on the fit side, and the one that is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim import policies
from easybalance_sim.amounts import Amount
from easybalance_sim.cost.objective import objective_seconds
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.gate.criteria import Criteria
from easybalance_sim.load.split import FIT
from easybalance_sim.plan import lint
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.relabel import nearest_to
from easybalance_sim.planning.cross_validation import NO_OPTIMISM, SAME, Balance, Validation
from easybalance_sim.planning.evidence import migration_between
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.policies import NotApplicable, Problem
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.traffic import Traffic

TIE_FRAC = 0.05
"""Predicted seconds that are closer are a tie."""
EXCESS_TIE_FRAC = 0.02
"""Of the excess of an imbalance over 1: closer is a tie."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A plan that competes, its outcome on the fit side and its objective in seconds per step.

    moved: what it costs to go there from the baseline · expected: rank imbalance on windows that it was not made from ·
    validation: how its policy fares on folds, None = not known.
    """

    plan: Plan
    outcome: Outcome
    objective_s: float
    moved: Mapping[str, int | float]
    expected: Balance
    validation: Validation | None = None

    @property
    def fitted(self) -> Balance:
        """Rank imbalance over fit windows × layers."""
        return Balance.of(self.outcome.window_imbalance)


def propose(request: PlanRequest, problem: Problem, tell: Listener) -> list[Plan]:
    """The baseline first, then every other plan that a policy makes."""
    plans = [_baseline(problem)]
    names = [name for name in request.names(problem.layers * problem.topology.slots) if name != plans[0].policy]
    advance = tell.progress("proposing plans", Amount(len(names), "policies"))
    for name in names:
        try:
            plans += policies.make_all(name, problem)
        except NotApplicable as reason:
            if request.policies:
                raise UsageError(str(reason), where=f"--policy {name}") from reason
            if not reason.plain:
                tell.note(f"policy {name} does not apply: {reason}")
        advance(1)
    for plan in plans[1:]:
        _require_clean(plan, problem)
    if problem.current is None:
        return plans
    return [plans[0], *(nearest_to(plans[0], plan, problem.topology.rank_kind) for plan in plans[1:])]


def _baseline(problem: Problem) -> Plan:
    """The plan in force, or contiguous when there is none."""
    if problem.current is None:
        return policies.make("contiguous", problem)
    try:
        return policies.make("keep" if problem.held is None else "repair", problem)
    except NotApplicable as reason:
        raise UsageError(str(reason), where="--current", fix="give a plan for this cluster") from reason


def _require_clean(plan: Plan, problem: Problem) -> None:
    """A policy must not propose what engines choke on."""
    for finding in lint.lint(plan, problem.topology):
        if finding.level == lint.ERROR:
            raise PlanError(finding.message, where=f"policy {plan.policy}, layer row {finding.layer}")


def score(
    plans: list[Plan], traffic: Traffic, session: Session, validations: Mapping[str, Validation] | None = None
) -> list[Candidate]:
    """Every plan on the fit side: the held-out side is never looked at to choose.

    validations: by name of plan. What is expected of a plan follows from what its policy's plans show on folds, of one
    without validation from its fit figures and the optimism of the most optimistic of the others.
    """
    known = validations or {}
    outcomes = traffic.replay(plans, FIT, session.bench)
    beyond = _beyond_fit(plans[0], outcomes[0], known)
    scored = []
    for plan, outcome in zip(plans, outcomes, strict=True):
        moved, found = migration_between(session, plans[0], plan), known.get(plan.policy)
        value = objective_seconds(
            float(np.quantile(outcome.step_seconds(), 0.99)),
            outcome.cross_node_bytes_per_token * outcome.tokens_per_step,
            float(moved["seconds"]),
            rdma_bytes_per_s=session.hardware.inter_node_bytes_per_s,
            ranks=plan.ranks,
        )
        expected = Balance.of(outcome.window_imbalance) + beyond if found is None else found.expected
        scored.append(
            Candidate(
                plan=plan, outcome=outcome, objective_s=value, moved=moved, expected=expected.at_least(1.0),
                validation=found,
            )
        )  # fmt: skip
    return scored


def _beyond_fit(baseline: Plan, outcome: Outcome, known: Mapping[str, Validation]) -> Balance:
    """What a plan without validation shows more on folds than on the fit side: the largest optimism, and how folds
    differ from the fit side for a plan that has none."""
    most = max((one.optimism for one in known.values()), key=lambda one: one.tail, default=NO_OPTIMISM)
    if baseline.policy not in known:
        return most
    judged = known[baseline.policy]
    return most + (judged.held[SAME] - judged.optimism - Balance.of(outcome.window_imbalance))


def competing(candidates: list[Candidate], request: PlanRequest) -> list[Candidate]:
    """Those of the asked policies that keep the limits on moves; the baseline always does."""
    moves, size = request.effort.max_moves, request.max_migration_bytes
    asked = [one for one in candidates if not request.policies or one.plan.policy.partition("@")[0] in request.policies]
    kept = [
        one
        for one in asked
        if (moves is None or one.moved["moves"] <= moves) and (size is None or one.moved["bytes"] <= size)
    ]
    if not kept:
        fewest = min(asked, key=lambda one: one.moved["moves"])
        raise UsageError(
            f"every plan moves more; the fewest moves are {fewest.moved['moves']} ({fewest.moved['bytes']} bytes)",
            where="--max-moves" if moves is not None else "--max-migration-bytes",
            fix="allow more, or let the plan in force compete",
        )
    return kept


def choose(candidates: list[Candidate], tie_frac: float) -> Candidate:
    """Of those whose seconds are a tie with the fastest, those with the lowest tail; of them those with the lowest
    mean; of them the fastest.

    Tail and mean imbalance are those expected of other windows; excesses over 1 within `EXCESS_TIE_FRAC` are equal.
    """
    limit = min(candidate.objective_s for candidate in candidates) * (1 + tie_frac)
    tied = [candidate for candidate in candidates if candidate.objective_s <= limit]
    excesses: tuple[Callable[[Candidate], float], ...] = (
        lambda one: one.expected.tail - 1,
        lambda one: one.expected.mean - 1,
    )
    for excess in excesses:
        least = min(excess(candidate) for candidate in tied)
        tied = [candidate for candidate in tied if excess(candidate) <= least * (1 + EXCESS_TIE_FRAC)]
    return min(tied, key=lambda candidate: (candidate.objective_s, candidate.expected.tail))


def tie_frac(session: Session, criteria: Criteria, tell: Listener) -> float:
    """How much slower a plan may be predicted and still count as equally fast.

    A predicted gain under 5 % is a tie (measured sign errors of the expert model); a plan that the gate would call
    slower never is one. With assumed widths the seconds decide nothing.
    """
    if session.shape.assumed:
        tell.note("candidates are compared by rank imbalance alone: the model's widths are not known")
        return float("inf")
    return min(TIE_FRAC, max(criteria.p99_layer_time_growth_max, 0.0))


def candidate_rows(candidates: list[Candidate]) -> list[dict[str, Any]]:
    """The report's `candidates`, each with the fronts that it is on."""
    return [_row(candidate, _fronts(candidate, candidates)) for candidate in candidates]


def _row(candidate: Candidate, fronts: list[str]) -> dict[str, Any]:
    fitted, expected = candidate.fitted, candidate.expected
    return {
        "policy": candidate.plan.policy,
        "slots": candidate.plan.slots,
        "objective_us": round(candidate.objective_s * 1e6, 3),
        "fit_imbalance_mean": round(fitted.mean, 6),
        "fit_imbalance_p99": round(fitted.p99, 6),
        "expected_imbalance_mean": round(expected.mean, 6),
        "expected_imbalance_p99": round(expected.p99, 6),
        "expected_imbalance_worst": round(expected.tail, 6),
        "cross_node_bytes_per_token": round(candidate.outcome.cross_node_bytes_per_token, 3),
        "moves": candidate.moved["moves"],
        "migration_bytes": candidate.moved["bytes"],
        "migration_s": round(float(candidate.moved["seconds"]), 6),
        "pareto": fronts,
    }


def _fronts(candidate: Candidate, candidates: list[Candidate]) -> list[str]:
    """The prices at which no other candidate has a tail as low: bytes moved, bytes between nodes."""
    prices: dict[str, Callable[[Candidate], float]] = {
        "migration_bytes": lambda one: float(one.moved["bytes"]),
        "cross_node_bytes": lambda one: one.outcome.cross_node_bytes_per_token,
    }
    mine = candidate.expected.tail
    return [
        name
        for name, price in prices.items()
        if not any(
            other.expected.tail <= mine
            and price(other) <= price(candidate)
            and (other.expected.tail < mine or price(other) < price(candidate))
            for other in candidates
        )
    ]
