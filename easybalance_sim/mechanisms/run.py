"""One run of `ebsim offset`: read and plan, ask every part, put what it gains beside what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.mechanisms.files import write_lossy_file, write_staggered
from easybalance_sim.mechanisms.parts import admission, feedback, front, queue, replicas, rerouting, sensing, staggering
from easybalance_sim.mechanisms.parts.feedback import Router, asked_for, router_of, usual
from easybalance_sim.mechanisms.prepare import Prepared, prepare
from easybalance_sim.mechanisms.request import PARTS, OffsetRequest
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.quality.judged import Judged

NEED_SCORES = ("feedback", "rerouting")


@dataclass(kw_only=True, eq=False)
class _Found:
    """sections: by part · rows: of the front · staggered: the plan with other labels, where it was asked for."""

    sections: dict[str, Any] = field(default_factory=dict)
    rows: list[Judged] = field(default_factory=list)
    staggered: Plan | None = None


def offset(request: OffsetRequest, tell: Listener) -> dict[str, Any]:
    """The JSON object of `ebsim offset`, notes aside. Raises `EbsimError` subclasses; files are written at the end."""
    ready = prepare(request, tell)
    request = replace(request, parts=_parts(ready))
    ready = replace(ready, request=request)
    router = _router(ready, tell)
    found = _Found(rows=front.lossless_rows(ready, tell))
    controllers = () if router is None else usual(router)
    if router is not None and request.controller:
        controllers = (asked_for(ready, router),)
    if router is not None:
        for part, ask in (("feedback", _feedback), ("rerouting", _rerouting)):
            if part in request.parts:
                found.sections[part], rows = ask(ready, router, controllers, tell)
                found.rows += rows
    _lossless(ready, found, tell)
    written: dict[str, str | None] = {"lossy": None, "plan": None, "figure": None}
    if request.output is not None and router is not None:
        written["lossy"] = write_lossy_file(ready, router, controllers, request.output)
    if request.plan_output is not None and found.staggered is not None:
        written["plan"] = write_staggered(ready, found.staggered, request.plan_output)
    sections = {part: found.sections.get(part) for part in ("sensing", *NEED_SCORES, *LOSSLESS)}
    return {**_head(ready), "front": front.section(found.rows), **sections, "files": written}


def _parts(ready: Prepared) -> tuple[str, ...]:
    """Those asked for; else all, but admission where there is no other node to cross to."""
    return ready.request.parts or tuple(part for part in PARTS if part != "admission" or ready.topology.nodes > 1)


def _router(ready: Prepared, tell: Listener) -> Router | None:
    """What the router's scores allow; None, with a note, when nothing that needs them was asked for by name."""
    request = ready.request
    if not set(NEED_SCORES) & set(request.parts):
        return None
    try:
        router = router_of(ready)
    except (TraceError, UsageError) as reason:
        if request.controller or request.cap is not None:
            raise
        tell.note(f"what a router would choose otherwise is left out: {reason}")
        return None
    if router.scores.is_frozen:
        tell.note("scores are known inside the recorded groups only: effects are understated, see feedback.scores")
    return router


def _feedback(ready: Prepared, router: Router, controllers: Any, tell: Listener) -> tuple[dict[str, Any], list[Judged]]:
    return feedback.section(ready, router, controllers, tell)


def _rerouting(
    ready: Prepared, router: Router, controllers: Any, tell: Listener
) -> tuple[dict[str, Any], list[Judged]]:
    return rerouting.section(ready, router, controllers[0], tell)


LOSSLESS = ("replicas", "staggering", "queue", "admission")


def _lossless(ready: Prepared, found: _Found, tell: Listener) -> None:
    """The parts that leave the router alone."""
    parts = ready.request.parts
    if "sensing" in parts:
        found.sections["sensing"] = _if_possible(sensing.section, ready, tell)
    if "replicas" in parts:
        found.sections["replicas"] = replicas.section(ready, tell)
    if "staggering" in parts:
        found.sections["staggering"], found.staggered = staggering.section(ready, tell)
    if "queue" in parts:
        found.sections["queue"] = queue.section(ready, tell)
    if "admission" in parts:
        found.sections["admission"] = admission.section(ready, tell)


def _if_possible(ask: Callable[[Prepared, Listener], Any], ready: Prepared, tell: Listener) -> Any:
    """None, with a note, for a part that this trace is too short for."""
    try:
        return ask(ready, tell)
    except UsageError as reason:
        tell.note(f"left out: {reason}")
        return None


def _head(ready: Prepared) -> dict[str, Any]:
    """What was judged, on what."""
    session, scored = ready.session, ready.scored
    document = ready.document
    cost = ready.cost(ready.plan)
    return {
        "trace": {
            "files": [str(path) for path in session.settings.traces],
            "fingerprint": session.trace_fingerprint,
            "model": session.meta.model,
            "layers": ready.plan.layers,
            "experts": ready.plan.experts,
            "top_k": session.meta.top_k,
        },
        "past": {
            "files": [str(path) for path in ready.request.past or session.settings.traces],
            "steps": len(ready.past),
            "first_step": int(ready.past.step[0]),
            "last_step": int(ready.past.step[-1]),
            "tokens": ready.past.tokens,
        },
        "judged": {
            "steps": len(scored),
            "warm_up_steps": ready.warm_up,
            "first_step": int(scored.step[0]),
            "last_step": int(scored.step[-1]),
            "tokens": scored.tokens,
            "step_ms": scored.step_s * 1e3,
            "window_steps": ready.window,
        },
        "plan": {
            "file": None if ready.request.plan is None else str(ready.request.plan),
            "fingerprint": None if document is None else document.fingerprint(),
            "policy": ready.plan.policy,
            "ranks": ready.plan.ranks,
            "nodes": ready.topology.nodes,
            "slots": ready.plan.slots,
            "redundant_slots": ready.plan.redundant_slots,
        },
        "cost": {"profile": session.hardware.name, "calibrated": not cost.reasons, "reasons": list(cost.reasons)},
    }
