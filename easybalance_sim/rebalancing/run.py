"""One run: read the trace, plan offline, let every control loop serve the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener, Session, open_session
from easybalance_sim.rebalancing.load import Load, service_of, stretched, windows_of, windows_over_time
from easybalance_sim.rebalancing.loops import loops
from easybalance_sim.rebalancing.request import FEWEST_WINDOWS, NEVER, STATIC, RebalanceRequest
from easybalance_sim.rebalancing.start import first_plans
from easybalance_sim.simulate.rebalance.controllers import Controller
from easybalance_sim.simulate.rebalance.loop import Course, run
from easybalance_sim.simulate.rebalance.report import course_section, times_of
from easybalance_sim.simulate.rebalance.serving import Service


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """All that control loops need. first: windows that made the offline plan · start: the plan in force · offline: the
    plan that every loop but "never" begins with, unless they start cold."""

    request: RebalanceRequest
    session: Session
    load: Load
    first: int
    service: Service
    start: Plan
    offline: Plan

    @property
    def experts(self) -> int:
        """Of all MoE layers."""
        return self.start.layers * self.start.experts

    def first_plan(self, loop: str) -> Plan:
        """What a loop begins with."""
        cold = loop == NEVER or (self.request.cold_start and loop != STATIC)
        return self.start if cold else self.offline

    def serve(self, controllers: Sequence[Controller], begin: int, end: int, tell: Listener) -> list[Course]:
        """Every loop over the windows from `begin` to before `end`."""
        plans = [(loop, self.first_plan(loop.name)) for loop in controllers]
        windows = windows_of(self.service, self.load, begin, end)
        return run(windows, plans, self.service, tell.progress("serving", Amount(end - begin, "windows")))


def rebalance(request: RebalanceRequest, tell: Listener) -> dict[str, Any]:
    """Run the control loops; returns the JSON object of `ebsim rebalance`. Raises `EbsimError` subclasses."""
    ready = prepare(request, tell)
    courses = ready.serve(loops(request, ready.service, ready.experts), ready.first, len(ready.load), tell)
    sections = [course_section(course, courses[0], ready.service) for course in courses]
    return {**described(ready), "timeline": _traffic(ready), "loops": sections}


def _traffic(ready: Prepared) -> dict[str, list[float]]:
    """What came over time, at the points of the loops' timelines: their first windows and the tokens of a step."""
    load, served = ready.load, np.arange(ready.first, len(ready.load))
    times = times_of(served)
    starts = times - ready.first
    steps = np.add.reduceat(load.steps[served], starts)
    tokens = np.add.reduceat((load.steps * load.step_tokens)[served], starts) / steps
    return {"window": times.tolist(), "tokens_per_step": tokens.tolist()}


def prepare(request: RebalanceRequest, tell: Listener) -> Prepared:
    """Read the trace and plan offline. Raises `UsageError` when too few windows are left to judge on."""
    session = open_session(request.settings, tell)
    load = stretched(windows_over_time(session, request.step_s), request)
    first = int(len(load) * request.first)
    if first < 1 or len(load) - first < FEWEST_WINDOWS:
        raise UsageError(
            f"{len(load)} windows, of which {first} make the offline plan",
            where="trace",
            fix=f"leave {FEWEST_WINDOWS} or more: a longer trace, or fewer --window-steps",
        )
    service = service_of(session, load, first, request)
    start, offline = first_plans(request, session, load, first, service, tell)
    # Slots that the offline plan does without are not there for the loops either: nobody pays for what slows it down.
    slots = offline.slots_per_rank if request.plans_offline else session.topology.slots_per_rank
    service = replace(service, topology=replace(service.topology, slots_per_rank=slots))
    return Prepared(
        request=request, session=session, load=load, first=first, service=service, start=start, offline=offline
    )


def described(ready: Prepared) -> dict[str, Any]:
    """What the report says of trace, cluster and cost."""
    meta, load, first = ready.session.meta, ready.load, ready.first
    steps = load.steps[first:]
    return {
        "trace": {
            "files": [str(path) for path in ready.session.trace.paths],
            "fingerprint": ready.session.trace_fingerprint,
            "model": ready.session.shape.name,
            "layers": len(meta.layers),
            "experts": meta.experts,
            "top_k": meta.top_k,
            "windows": len(load),
            "offline_windows": first,
            "steps": float(steps.sum()),
            "tokens_per_step": float(np.average(load.step_tokens[first:], weights=steps)),
        },
        "cluster": {
            "ranks": ready.service.topology.ranks,
            "nodes": ready.service.topology.nodes,
            "slots_per_rank": int(ready.service.topology.slots_per_rank.max()),
            "profile": ready.session.topology.profile,
        },
        "offline_policy": ready.offline.policy,
        "cost": {
            "label": ready.session.bench.cost(ready.offline).label,
            "other_us": 1e6 * ready.request.other_s,
        },
    }
