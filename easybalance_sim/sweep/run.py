"""What `ebsim sweep` does, start to end."""

from __future__ import annotations

from typing import Any

from easybalance_sim.files import write_text
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.json_text import json_text
from easybalance_sim.planning.candidates import tie_frac
from easybalance_sim.planning.evidence import Stopwatch
from easybalance_sim.planning.memory import kv_room
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.sweep.curve import Curve, trace_curve
from easybalance_sim.sweep.grid import Layout, layouts
from easybalance_sim.sweep.request import SweepRequest, plan_request, require_possible, sessions
from easybalance_sim.sweep.sections import WHAT_IF, curve_section, head_section

NO_ROOM_LIMIT = 1 << 30


def run_sweep(request: SweepRequest, tell: Listener) -> dict[str, Any]:
    """Sweep slots per rank for every number of ranks and window length; the documented JSON object.

    Raises `EbsimError` subclasses for bad input. Writes the report where `request.plan.output` says, not the figure.
    """
    clock = Stopwatch()
    require_possible(request)
    curves: list[Curve] = []
    for session in sessions(request, tell):
        points = _points(request, session, tell)
        asked = plan_request(request, session, len(points) * len(request.window_steps) * max(len(request.ranks), 1))
        limit = tie_frac(session, load_criteria(request.plan.criteria), tell)
        curves.append(trace_curve(asked, session, points, limit, tell))
        clock.lap(f"ranks_{session.topology.ranks}_window_{session.settings.window_steps}")
    by_seconds = _by_seconds(request, curves[0])
    report = head_section(curves[0], request.plan, kv_room(curves[0].session, request.kv_dtype), by_seconds)
    report["curves"] = []
    for curve in curves:
        room = kv_room(curve.session, request.kv_dtype)
        section = curve_section(curve, room, by_seconds, per_layer=request.per_layer)
        report["curves"].append(section)
    if request.per_layer:
        report["per_layer_note"] = WHAT_IF
    return {**report, "timing_s": clock.laps()}


def _points(request: SweepRequest, session: Session, tell: Listener) -> list[Layout]:
    ranks, experts = session.topology.ranks, session.meta.experts
    room = kv_room(session, request.kv_dtype).most_slots(session.shape)
    found, left_out = layouts(experts, ranks, request.wanted, NO_ROOM_LIMIT if room is None else room)
    if left_out:
        can = "" if room is None else f", memory for {room}"
        tell.note(
            f"{ranks} ranks: left out are {', '.join(map(str, left_out))} slots per rank "
            f"({experts} experts need {found[0].most}{can})"
        )
    return found


def _by_seconds(request: SweepRequest, curve: Curve) -> bool:
    """Whether gains are seconds: when asked for, or where the expert part is calibrated for this model."""
    if request.plan.objective != "auto":
        return request.plan.objective == "seconds"
    shape, plan = curve.session.shape, curve.points[0].best.plan
    return not shape.assumed and not curve.session.bench.cost(plan).expert.reasons


def write_report(request: SweepRequest, report: dict[str, Any]) -> None:
    """The report where -o says, whole or not at all."""
    if request.plan.output is not None:
        write_text(request.plan.output, f"{json_text(report)}\n")
