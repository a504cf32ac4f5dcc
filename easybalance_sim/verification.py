"""What `ebsim replay` does: an existing plan on traffic, against a baseline, before the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim import policies
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.verdict import Verdict
from easybalance_sim.load.selection import Selection, phase_filter, workload_filter
from easybalance_sim.load.split import HELD_OUT, make_split
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, read_plan
from easybalance_sim.planning.evidence import Stopwatch, assemble, tell_if_thinned, with_verdict
from easybalance_sim.planning.floor import floor_plan
from easybalance_sim.planning.memory import tell_of_bursts
from easybalance_sim.planning.session import Listener, Session, Settings, open_session, selected_windows
from easybalance_sim.planning.stress.run import stress_section
from easybalance_sim.planning.whose import tell_of_another_model
from easybalance_sim.policies import UNLIMITED, NotApplicable, Problem
from easybalance_sim.replay.traffic import CountTraffic, TokenTraffic, Traffic, split_counts
from easybalance_sim.trace.dataset import TokenTrace
from easybalance_sim.trace.schema import CountTrace


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """`settings` and the plan to judge. baseline: a plan file or the name of a policy that needs no load.

    window_steps, window_seconds, dispatch, overlap: None or 0 = the plan's; those of `settings` are not looked at.
    """

    settings: Settings
    plan: Path
    baseline: str = "contiguous"
    criteria: Path | None = None
    window_steps: int | None = None
    window_seconds: float = 0.0
    dispatch: str | None = None
    overlap: str | None = None
    stress: bool = False


def replay_plan(request: ReplayRequest, tell: Listener) -> tuple[dict[str, Any], Verdict]:
    """Judge a plan file on a trace. Tokens that the plan was fitted on are left out when it is the same trace.

    Cluster, window length and dispatch rule are the plan's own where nothing else is said.
    Returns the report and the verdict; raises `EbsimError` subclasses for bad input.
    """
    clock = Stopwatch()
    criteria = load_criteria(request.criteria)
    doc = read_plan(request.plan)
    session = open_session(_settings(request, doc), tell, doc.topology.topology())
    _require_fits(doc, session, "--plan")
    tell_of_another_model(doc, session, tell)
    plan = doc.plan()
    baseline = _baseline(request.baseline, session, tell)
    traffic = _unseen_traffic(doc, session, tell)
    clock.lap("read")
    tell_if_thinned(traffic, tell)
    floor = floor_plan(plan, traffic.judged_windows(), session, UNLIMITED)
    clock.lap("floor")
    before, after, least = traffic.replay([baseline, plan, floor], HELD_OUT, session.bench)
    clock.lap("replay")
    split = {
        **traffic.describe_split(),
        "fit_steps": doc.trace.fit.get("steps"),
        "fit_windows": doc.trace.fit.get("windows"),
        "held_out_steps": after.steps,
        "held_out_windows": after.windows,
    }
    report = assemble(session, traffic, before, after, least, split)
    tell_of_bursts(report["memory"], tell)
    report["fit"] = _fit_evidence(doc, session, tell)
    if request.stress:
        # The plan file does not hold the load that the plan was made from.
        report["stress"] = stress_section(before, after, traffic, session, None)
        clock.lap("stress")
    report, verdict = with_verdict(report, criteria)
    written = {"plan_file": str(request.plan), "fingerprint": doc.fingerprint()}
    return {**report, **written, "timing_s": clock.laps()}, verdict


def _settings(request: ReplayRequest, doc: PlanDocument) -> Settings:
    """What the user said, completed by how the plan was judged."""
    steps, seconds = request.window_steps, request.window_seconds
    if not steps and not seconds:
        steps, seconds = _window_of(doc)
    return replace(
        request.settings,
        window_steps=steps or _window_of(doc)[0],
        window_seconds=seconds,
        dispatch=request.dispatch or doc.dispatch,
        overlap=request.overlap or str(doc.evidence.get("cost", {}).get("overlap", "none")),
    )


def _window_of(doc: PlanDocument) -> tuple[int, float]:
    """Steps and seconds (0 = steps count) of the windows that the plan was judged on."""
    drawn = doc.trace.split
    return int(drawn.get("window_steps", 16)), float(drawn.get("window_seconds", 0.0))


def _fit_evidence(doc: PlanDocument, session: Session, tell: Listener) -> Any:
    """The plan's own figures on its fit side, None when they are of other windows or another dispatch rule."""
    settings = session.settings
    if ((settings.window_steps, settings.window_seconds), settings.dispatch) != (_window_of(doc), doc.dispatch):
        tell.note("windows or dispatch are not the plan's: its fit side is no measure here")
        return None
    return doc.evidence.get("fit")


def _require_fits(doc: PlanDocument, session: Session, flag: str) -> None:
    """Same layers and experts as the trace, and room on the cluster."""
    if (doc.layer_ids, doc.experts) != (session.meta.layers, session.meta.experts):
        raise PlanError(
            f"the plan is for {len(doc.layers)} layers × {doc.experts} experts, "
            f"the trace has {len(session.meta.layers)} × {session.meta.experts} (or other layer ids)",
            where=flag,
            fix="replay a trace of the model that the plan was made for",
        )
    have, need = session.topology.slots_per_rank, np.array(doc.plan_slots_per_rank)
    if len(have) != len(need) or (need > have).any():
        raise PlanError(
            f"the plan is for {len(need)} ranks with up to {need.max()} slots, the cluster has {len(have)} with up to "
            f"{have.max()}",
            where=flag,
            fix="check --cluster",
        )


def _baseline(name: str, session: Session, tell: Listener) -> Plan:
    if Path(name).is_file():
        doc = read_plan(Path(name))
        _require_fits(doc, session, "--baseline")
        tell_of_another_model(doc, session, tell, "the baseline")
        return doc.plan()
    if name not in ("contiguous", "round_robin"):
        raise UsageError(
            f"{name!r} is neither a plan file nor contiguous or round_robin", where="--baseline", fix="name one of them"
        )
    empty = np.zeros((len(session.meta.layers), session.meta.experts))
    problem = Problem(
        forecast=empty,
        windows=np.zeros((0, *empty.shape), np.int64),
        topology=session.topology,
        groups=session.meta.groups,
    )
    try:
        return policies.make(name, problem)
    except NotApplicable as reason:
        raise UsageError(str(reason), where=f"--baseline {name}", fix="give a plan file with --baseline") from reason


def _unseen_traffic(doc: PlanDocument, session: Session, tell: Listener) -> Traffic:
    """The selected traffic without what the plan was fitted on."""
    same = doc.trace.fingerprint == session.trace_fingerprint
    if not same:
        _require_other_files(doc, session)
    settings = {
        "by": "unseen" if same else "all",
        "window_steps": session.settings.window_steps,
        "window_seconds": session.settings.window_seconds,
        "phase": session.settings.phase,
        "workloads": list(session.settings.workloads),
    }
    if same:
        tell.note("the plan was fitted on this trace: only what it was not made from is replayed")
    if isinstance(session.trace, CountTrace):
        return _unseen_windows(session.trace, doc, session, same, settings)
    return TokenTraffic(
        trace=session.trace,
        selection=replace(session.selection(), without=_fitted_on(session.trace, doc) if same else None),
        split=None,
        windowing=session.bench.windowing,
        settings=settings,
    )


def _require_other_files(doc: PlanDocument, session: Session) -> None:
    """Refuse single files of the trace that the plan was made from: its split is one of the whole trace."""
    for path, one in zip(session.trace.paths, session.file_fingerprints, strict=True):
        if one in doc.trace.file_fingerprints:
            raise UsageError(
                "the plan was made from this file among others",
                where=str(path),
                fix="replay the whole trace in its order (what the plan saw is left out), or only other traffic",
            )


def _fitted_on(trace: TokenTrace, doc: PlanDocument) -> Selection:
    """What the plan was made from, by the split settings in its file: all that its run did not hold out of the
    workloads that it selected, in every phase, so that no request is on both sides.

    With a split by time that includes the tokens before the boundary of requests that were alive there: they were on
    neither side, and without their company they are no traffic that any step had.
    """
    drawn = doc.trace.split
    scan = trace.scan()
    chosen = workload_filter(tuple(drawn["workloads"]), trace.workloads)
    split = make_split(
        scan,
        trace.workloads,
        str(drawn["by"]),
        float(drawn["held_out"]),
        int(drawn["seed"]),
        int(drawn["window_steps"]),
        chosen,
    )
    return Selection(
        workloads=chosen,
        without=Selection(split=split, side=HELD_OUT),
    )


def _unseen_windows(
    trace: CountTrace, doc: PlanDocument, session: Session, same: bool, settings: Mapping[str, Any]
) -> CountTraffic:
    held = selected_windows(trace, session.selection())
    if same:
        drawn = doc.trace.split
        chosen = Selection(
            phase=phase_filter(drawn["phase"]), workloads=workload_filter(tuple(drawn["workloads"]), trace.workloads)
        )
        keep = selected_windows(trace, chosen)
        held &= ~split_counts(trace, keep, str(drawn["by"]), float(drawn["held_out"]), int(drawn["seed"]))[0]
    if not held.any():
        raise UsageError(
            "no window is left that the plan was not fitted on",
            where="trace",
            fix="give traffic of another time or workload",
        )
    return CountTraffic(trace=trace, fit=~held, held=held, settings=settings)
