"""What `ebsim plan` does, start to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import IntArray
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.cost.objective import objective_seconds
from easybalance_sim.cost.slots import SlotCost, slot_cost
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.evidence import Stopwatch, assemble, migration_between, with_verdict
from easybalance_sim.files import require_place
from easybalance_sim.gate.criteria import Criteria, load_criteria
from easybalance_sim.gate.verdict import ACCEPTED, Verdict
from easybalance_sim.load.forecast import METHODS, forecast
from easybalance_sim.load.split import FIT, HELD_OUT, MODES
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan import lint
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, TraceRecord, document, read_plan, write_plan
from easybalance_sim.plan.relabel import nearest_to
from easybalance_sim.policies import UNLIMITED, Effort, NotApplicable, Problem
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.traffic import Traffic
from easybalance_sim.session import Listener, Session, Settings, open_session, require_choice

TIE_FRAC = 0.05
OBJECTIVES = ("auto", "tokens", "seconds")
"""What a search balances; auto: seconds where the expert part is calibrated for this model, else tokens."""
SEARCHES = ("window_search", "warm_search")
"""Policies that look at re-batched windows."""
TRAFFIC_POLICIES = ("eplb_relabelled", "traffic_search")
"""Policies that look at a token sample."""
SLOW_POLICIES = ("traffic_search",)
"""Policies that take minutes on large models: they compete when named, or when a budget limits them."""
SAMPLE_TOKENS = 3000


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """`settings` and what only planning needs; fields as the command's flags."""

    settings: Settings
    policies: tuple[str, ...] = ()
    split: str = "time"
    held_out: float = 0.5
    forecast: str = "mean"
    half_life: float = 0.0
    criteria: Path | None = None
    current: Path | None = None
    force: bool = False
    output: Path | None = None
    objective: str = "auto"
    effort: Effort = UNLIMITED
    max_migration_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A plan that competes, its outcome on the fit side and its objective in seconds per step."""

    plan: Plan
    outcome: Outcome
    objective_s: float
    moved: Mapping[str, int | float]

    @property
    def imbalance_p99(self) -> float:
        """P99 of the rank imbalance over fit windows × layers."""
        return float(np.nanquantile(self.outcome.window_imbalance, 0.99))


def make_plan(request: PlanRequest, tell: Listener) -> tuple[dict[str, Any], Verdict]:
    """Fit candidates on one side of the trace, judge the best on the other, write it when accepted.

    Returns the report (the documented JSON object) and the verdict. Raises `EbsimError` subclasses for bad input.
    """
    clock = Stopwatch()
    _require_sound(request)
    criteria = load_criteria(request.criteria)
    parent = read_plan(request.current) if request.current is not None else None
    session = open_session(request.settings, tell, None if parent is None else parent.topology.topology())
    traffic = session.traffic(request.split, request.held_out, request.settings.seed)
    clock.lap("read")
    windows = traffic.fit_windows()
    if len(windows.window) == 0:
        raise UsageError("no token to fit a plan on", where="trace", fix="choose other --workload, --phase or --split")
    problem = _problem(request, session, traffic, windows, parent)
    plans = _propose(request, problem, tell)
    clock.lap("candidates")
    candidates = _score(plans, traffic, session)
    competing = _competing(candidates, request)
    best = _choose(competing, _tie_frac(session, criteria, tell))
    clock.lap("scoring")
    side = HELD_OUT if traffic.has_held_out() else FIT
    if side == FIT:
        tell.note("nothing is held out: the figures are those of the fit windows, no proof")
    before, after = traffic.replay([plans[0], best.plan], side, session.bench)
    clock.lap("replay")
    split = _split_section(traffic, windows, session.meta.top_k, after, side)
    report = assemble(session, before, after, split)
    report["fit"] = _fit_section(candidates[0], best, session)
    report["candidates"] = [_candidate_row(candidate) for candidate in candidates]
    report, verdict = with_verdict(report, criteria)
    written = _publish(request, session, best.plan, parent, report, verdict)
    return {**report, **written, "timing_s": clock.laps()}, verdict


def _fit_section(baseline: Candidate, best: Candidate, session: Session) -> dict[str, Any]:
    """The winner's figures on the fit side, and the baseline's imbalance there: what the plan promised."""
    compared = baseline.outcome.section(session.shape)
    known = {name: compared[name] for name in ("policy", "rank_imbalance")}
    return {**best.outcome.section(session.shape), "baseline": known}


def _require_sound(request: PlanRequest) -> None:
    """Refuse what would only be noticed after a long run: unknown names, an -o that cannot be written."""
    require_choice("--split", request.split, MODES)
    require_choice("--forecast", request.forecast, METHODS)
    require_choice("--objective", request.objective, OBJECTIVES)
    for name in request.policies:
        require_choice("--policy", name, policies.names())
    _require_moves_to_limit(request)
    if request.output is not None:
        require_place(request.output)


def _require_moves_to_limit(request: PlanRequest) -> None:
    limits = {"--max-moves": request.effort.max_moves, "--max-migration-bytes": request.max_migration_bytes}
    for flag, limit in limits.items():
        if limit is not None and request.current is None:
            raise UsageError(
                "there are no moves without a plan in force", where=flag, fix="give that plan with --current"
            )


def _problem(
    request: PlanRequest, session: Session, traffic: Traffic, windows: LoadWindows, parent: PlanDocument | None
) -> Problem:
    current = None if parent is None else _current(parent, session)
    wanted = _wanted(request)
    searching = any(name in SEARCHES for name in wanted)
    sampling = session.topology.nodes > 1 and any(name in TRAFFIC_POLICIES for name in wanted)
    return Problem(
        forecast=forecast(windows, request.forecast, request.half_life).tokens,
        windows=windows.tokens,
        topology=session.topology,
        groups=session.meta.groups,
        current=current,
        seed=request.settings.seed,
        rebatched=traffic.rebatched_windows(windows, request.settings.seed) if searching else None,
        window_steps=float(windows.steps.mean()),
        slot_cost=_slot_cost(request, session, windows),
        sample=traffic.token_sample(SAMPLE_TOKENS, session.bench) if sampling else None,
        per_assignment=session.bench.mode == "low_latency",
        effort=_effort(request, session),
        progress=session.bench.progress,
    )


def _wanted(request: PlanRequest) -> tuple[str, ...]:
    """The policies that compete, each once."""
    if request.policies:
        return tuple(dict.fromkeys(request.policies))
    slow = () if request.effort.budget_s else SLOW_POLICIES
    return tuple(name for name in policies.names() if name not in slow)


def _effort(request: PlanRequest, session: Session) -> Effort:
    """The effort with the moves that both limits allow."""
    if request.max_migration_bytes is None:
        return request.effort
    by_bytes = request.max_migration_bytes // session.shape.expert_bytes
    given = request.effort.max_moves
    return replace(request.effort, max_moves=by_bytes if given is None else min(given, by_bytes))


def _slot_cost(request: PlanRequest, session: Session, windows: LoadWindows) -> SlotCost | None:
    """Seconds per slot at the fit side's mean step; None when the search is to balance tokens."""
    topology = session.topology
    slots = topology.slots_per_rank
    cost = layer_cost(session.hardware, session.shape, topology, slots, session.bench.mode, session.phase)
    if request.objective == "tokens" or (request.objective == "auto" and cost.expert.reasons):
        return None
    per_step = windows.tokens.sum() / len(session.meta.layers) / max(int(windows.steps.sum()), 1)
    return slot_cost(cost, max(1.0, float(per_step) / topology.slots))


def _current(parent: PlanDocument, session: Session) -> Plan:
    plan = parent.plan()
    wanted = (session.meta.layers, session.meta.experts, session.topology.ranks)
    got = (parent.layer_ids, plan.experts, plan.ranks)
    if got != wanted:
        raise PlanError(
            f"the plan in force is for {len(got[0])} layers, {got[1]} experts, {got[2]} ranks; "
            f"the trace and cluster have {len(wanted[0])}, {wanted[1]}, {wanted[2]} (or other layer ids)",
            where="--current",
        )
    return plan


def _propose(request: PlanRequest, problem: Problem, tell: Listener) -> list[Plan]:
    """The baseline first, then every other plan that a policy makes."""
    plans = [_baseline(problem)]
    for name in _wanted(request):
        if name == plans[0].policy:
            continue
        try:
            plans.append(policies.make(name, problem))
        except NotApplicable as reason:
            if request.policies:
                raise UsageError(str(reason), where=f"--policy {name}") from reason
            if name != "keep":
                tell.note(f"policy {name} does not apply: {reason}")
    for plan in plans[1:]:
        _require_clean(plan, problem)
    if problem.current is None:
        return plans
    return [plans[0], *(nearest_to(plans[0], plan, _rank_kind(problem)) for plan in plans[1:])]


def _rank_kind(problem: Problem) -> IntArray:
    """int64[R] ranks that may swap their experts for free: same slots, speed and node."""
    topology = problem.topology
    kinds = np.stack([topology.slots_per_rank, topology.speed, topology.node_of_rank])
    return np.unique(kinds, axis=1, return_inverse=True)[1].astype(np.int64)


def _baseline(problem: Problem) -> Plan:
    """The plan in force, or contiguous when there is none."""
    if problem.current is None:
        return policies.make("contiguous", problem)
    try:
        return policies.make("keep", problem)
    except NotApplicable as reason:
        raise UsageError(str(reason), where="--current", fix="give a plan for this cluster") from reason


def _require_clean(plan: Plan, problem: Problem) -> None:
    """A policy must not propose what engines choke on."""
    for finding in lint.lint(plan, problem.topology):
        if finding.level == lint.ERROR:
            raise PlanError(finding.message, where=f"policy {plan.policy}, layer row {finding.layer}")


def _score(plans: list[Plan], traffic: Traffic, session: Session) -> list[Candidate]:
    """Every plan on the fit side: the held-out side is never looked at to choose."""
    outcomes = traffic.replay(plans, FIT, session.bench)
    rdma = session.hardware.inter_node_bytes_per_s
    scored = []
    for plan, outcome in zip(plans, outcomes, strict=True):
        moved = migration_between(session, plans[0], plan)
        value = objective_seconds(
            float(np.quantile(outcome.step_seconds(), 0.99)),
            outcome.cross_node_bytes_per_token * outcome.tokens_per_step,
            float(moved["seconds"]),
            rdma_bytes_per_s=rdma,
            ranks=plan.ranks,
        )
        scored.append(Candidate(plan=plan, outcome=outcome, objective_s=value, moved=moved))
    return scored


def _competing(candidates: list[Candidate], request: PlanRequest) -> list[Candidate]:
    """Those of the asked policies that keep the limits on moves; the baseline always does."""
    moves, size = request.effort.max_moves, request.max_migration_bytes
    asked = [one for one in candidates if not request.policies or one.plan.policy in request.policies]
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


def _choose(candidates: list[Candidate], tie_frac: float) -> Candidate:
    """The lowest P99 imbalance among those whose seconds are a tie with the fastest."""
    limit = min(candidate.objective_s for candidate in candidates) * (1 + tie_frac)
    tied = [candidate for candidate in candidates if candidate.objective_s <= limit]
    return min(tied, key=lambda candidate: (candidate.imbalance_p99, candidate.objective_s))


def _tie_frac(session: Session, criteria: Criteria, tell: Listener) -> float:
    """How much slower a plan may be predicted and still count as equally fast.

    A predicted gain under 5 % is a tie (measured sign errors of the expert model); a plan that the gate would call
    slower never is one. With assumed widths the seconds decide nothing.
    """
    if session.shape.assumed:
        tell.note("candidates are compared by rank imbalance alone: the model's widths are not known")
        return float("inf")
    return min(TIE_FRAC, max(criteria.p99_layer_time_growth_max, 0.0))


def _split_section(traffic: Traffic, windows: LoadWindows, top_k: int, after: Outcome, side: int) -> dict[str, Any]:
    held = side == HELD_OUT
    return {
        **traffic.describe_split(),
        "fit_steps": int(windows.steps.sum()),
        "fit_windows": len(windows.window),
        "fit_tokens": int(windows.tokens[:, 0].sum()) // top_k,
        "held_out_steps": after.steps if held else 0,
        "held_out_windows": after.windows if held else 0,
    }


def _candidate_row(candidate: Candidate) -> dict[str, Any]:
    ratios = candidate.outcome.window_imbalance
    return {
        "policy": candidate.plan.policy,
        "slots": candidate.plan.slots,
        "objective_us": round(candidate.objective_s * 1e6, 3),
        "fit_imbalance_mean": round(float(np.nanmean(ratios)), 6),
        "fit_imbalance_p99": round(candidate.imbalance_p99, 6),
        "moves": candidate.moved["moves"],
        "migration_bytes": candidate.moved["bytes"],
        "migration_s": round(float(candidate.moved["seconds"]), 6),
    }


def _publish(
    request: PlanRequest,
    session: Session,
    plan: Plan,
    parent: PlanDocument | None,
    report: dict[str, Any],
    verdict: Verdict,
) -> dict[str, Any]:
    """Write the plan file if there is an -o and the verdict allows it; an old file stays otherwise."""
    split = report["split"]
    doc = document(
        plan,
        layer_ids=session.meta.layers,
        topology=session.topology,
        trace=TraceRecord(
            fingerprint=session.trace_fingerprint,
            files=tuple(report["trace"]["files"]),
            file_fingerprints=session.file_fingerprints,
            fit={name: split[f"fit_{name}"] for name in ("steps", "windows", "tokens")},
            held_out={name: split[f"held_out_{name}"] for name in ("steps", "windows", "tokens")},
            split={
                name: split[name]
                for name in ("by", "held_out", "seed", "window_steps", "window_seconds", "phase", "workloads")
            },
        ),
        dispatch=session.bench.rule,
        evidence={name: value for name, value in report.items() if name not in ("verdict", "migration")},
        verdict=report["verdict"],
        migration=report["migration"],
        model=session.shape.name,
        model_revision=session.meta.model_revision,
        phase=request.settings.phase or "",
        parent=parent,
    )
    wanted = request.output is not None and (verdict.status == ACCEPTED or request.force)
    if wanted and request.output is not None:
        write_plan(request.output, doc)
    return {"plan_file": str(request.output) if wanted else None, "fingerprint": doc.fingerprint()}
