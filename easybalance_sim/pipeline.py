"""What `ebsim plan` does, start to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from easybalance_sim.errors import UsageError
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.verdict import ACCEPTED, Verdict
from easybalance_sim.load.split import FIT, HELD_OUT
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, TraceRecord, document, write_plan
from easybalance_sim.planning.candidates import Candidate, candidate_rows, choose, competing, propose, score, tie_frac
from easybalance_sim.planning.cross_validation import NEW, SAME, Balance, validate
from easybalance_sim.planning.evidence import Stopwatch, assemble, tell_if_thinned, with_verdict
from easybalance_sim.planning.floor import floor_plan
from easybalance_sim.planning.in_force import InForce, open_in_force, tell_if_flattered
from easybalance_sim.planning.memory import tell_of_bursts
from easybalance_sim.planning.problems import problem_of
from easybalance_sim.planning.request import NEED_NO_LOAD, SLOW_POLICIES, PlanRequest, require_sound
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.planning.stress.run import stress_section
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.traffic import Traffic


@dataclass(frozen=True, kw_only=True, eq=False)
class Made:
    """A plan as a run made it, not written yet. report: as documented, `plan_file` null · traffic, session: what it was
    fitted and judged on."""

    plan: Plan
    report: dict[str, Any]
    verdict: Verdict
    document: PlanDocument
    session: Session
    traffic: Traffic


def make_plan(request: PlanRequest, tell: Listener) -> tuple[dict[str, Any], Verdict]:
    """Fit candidates on one side of the trace, judge the best on the other, write it when accepted.

    Returns the report (the documented JSON object) and the verdict. Raises `EbsimError` subclasses for bad input.
    """
    made = fit_and_judge(request, tell)
    return publish(request, made), made.verdict


def fit_and_judge(request: PlanRequest, tell: Listener) -> Made:
    """Fit candidates on one side of the trace, judge the best on the other. Raises as `make_plan`."""
    clock = Stopwatch()
    require_sound(request)
    criteria = load_criteria(request.criteria)
    session, parent = open_in_force(request, tell)
    traffic = session.traffic(request.split, request.held_out, request.settings.seed)
    if parent is not None:
        tell_if_flattered(parent.document, session, traffic.describe_split(), tell)
    clock.lap("read")
    tell_if_thinned(traffic, tell)
    windows = traffic.fit_windows()
    if len(windows.window) == 0:
        raise UsageError("no token to fit a plan on", where="trace", fix="choose other --workload, --phase or --split")
    problem = problem_of(request, session, traffic, windows, parent)
    plans = propose(request, problem, tell)
    clock.lap("candidates")
    fitted = any(plan.policy not in NEED_NO_LOAD for plan in plans)
    folds = traffic.folds(windows, request.settings.seed) if fitted else ()
    validations = validate(plans, problem, folds, SLOW_POLICIES)
    clock.lap("cross_validation")
    candidates = score(plans, traffic, session, validations)
    best = choose(competing(candidates, request), tie_frac(session, criteria, tell))
    clock.lap("scoring")
    side = HELD_OUT if traffic.has_held_out() else FIT
    if side == FIT:
        tell.note("nothing is held out: the figures are those of the fit windows, no proof")
    floor = floor_plan(best.plan, traffic.judged_windows(), session, request.effort)
    clock.lap("floor")
    before, after, least = traffic.replay([plans[0], best.plan, floor], side, session.bench)
    clock.lap("replay")
    split = _split_section(traffic, windows, session.meta.top_k, after, side)
    report = assemble(session, traffic, before, after, least, split)
    tell_of_bursts(report["memory"], tell)
    report["fit"] = _fit_section(candidates[0], best, session)
    report["candidates"] = candidate_rows(candidates)
    if request.stress:
        report["stress"] = stress_section(before, after, traffic, session, windows.tokens.mean(axis=0))
        clock.lap("stress")
    report, verdict = with_verdict(report, criteria)
    doc = _document(request, session, best.plan, parent, report)
    report = {**report, "plan_file": None, "fingerprint": doc.fingerprint(), "timing_s": clock.laps()}
    return Made(plan=best.plan, report=report, verdict=verdict, document=doc, session=session, traffic=traffic)


def publish(request: PlanRequest, made: Made) -> dict[str, Any]:
    """Write the plan file if there is an -o and the verdict allows it; an old file stays otherwise. The report says
    which file was written."""
    wanted = request.output is not None and (made.verdict.status == ACCEPTED or request.force)
    if wanted and request.output is not None:
        write_plan(request.output, made.document)
    return {**made.report, "plan_file": str(request.output) if wanted else None}


def _fit_section(baseline: Candidate, best: Candidate, session: Session) -> dict[str, Any]:
    """The winner's figures on the fit side, the baseline's there, and what is promised of other windows."""
    compared = baseline.outcome.section(session.shape)
    known = {name: compared[name] for name in ("policy", "rank_imbalance")}
    return {
        **best.outcome.section(session.shape),
        "expected_imbalance": best.expected.to_dict(),
        "baseline": {**known, "expected_imbalance": baseline.expected.to_dict()},
        "cross_validation": _cross_validation(baseline, best),
    }


def _cross_validation(baseline: Candidate, best: Candidate) -> dict[str, Any] | None:
    """By kind of fold, the two on the part that was not planned on; None without folds."""
    before, after = baseline.validation, best.validation
    if before is None or after is None:
        return None
    return {kind: _gain(before.held[kind], after.held[kind]) for kind in (SAME, NEW)}


def _gain(before: Balance, after: Balance) -> dict[str, Any]:
    removed = {
        name: round((old - new) / (old - 1), 4) if old > 1 else 0.0
        for name, old, new in (("mean", before.mean, after.mean), ("p99", before.p99, after.p99))
    }
    return {"baseline": before.to_dict(), "plan": after.to_dict(), "removed_excess": removed}


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


def _document(
    request: PlanRequest, session: Session, plan: Plan, parent: InForce | None, report: dict[str, Any]
) -> PlanDocument:
    """All that the plan file says."""
    split = report["split"]
    return document(
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
        evidence={
            name: value for name, value in report.items() if name not in ("verdict", "migration", "load", "maps")
        },
        verdict=report["verdict"],
        migration=report["migration"],
        model=session.shape.name,
        model_revision=session.meta.model_revision,
        phase=request.settings.phase or "",
        parent=None if parent is None else parent.document,
        parent_ranks=None if parent is None or parent.left is None else parent.left.old_rank,
    )
