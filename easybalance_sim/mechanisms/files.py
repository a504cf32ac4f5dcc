"""What a run may write: settings that are lossy, in a file of their own, and the staggered plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from easybalance_sim.mechanisms.parts.feedback import Router
from easybalance_sim.mechanisms.parts.rerouting import settles
from easybalance_sim.mechanisms.prepare import HELD_OUT_SHARE, Prepared
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import TraceRecord, document, write_plan
from easybalance_sim.simulate.offsets.controllers import Controller
from easybalance_sim.simulate.offsets.loop import Mechanism
from easybalance_sim.simulate.offsets.stability import margin
from easybalance_sim.simulate.quality import lossy_file
from easybalance_sim.simulate.quality.judged import judged
from easybalance_sim.simulate.quality.keeping import run_keeping_offsets
from easybalance_sim.simulate.rerouting.overflow import Overflow

NOT_JUDGED = "not judged"


def write_lossy_file(ready: Prepared, router: Router, controllers: Sequence[Controller], path: Path) -> str:
    """The controller or the cap that was asked for, with what it was judged on and its price; returns the path."""
    request, plan = ready.request, ready.plan
    mechanism: Mechanism = controllers[0] if request.controller else Overflow(cap=request.cap or 0.0)
    outcome, offsets = run_keeping_offsets(mechanism, router.scores, plan, router.loop)
    capped = isinstance(mechanism, Overflow)
    loop = {"delay_steps": router.loop.delay, "window_steps": router.loop.window}
    settings = asdict(controllers[0]) | loop if request.controller else {"cap": request.cap, "rule": Overflow.rule}
    made = lossy_file.document(
        judged(mechanism, outcome, plan, stable=settles(mechanism, outcome, router, plan)),
        router.without.balance,
        plan,
        ready.judged,
        warm_up=ready.warm_up,
        scores=router.scores.mode,
        settings=settings,
        offsets=None if capped else offsets,
        cap=request.cap if capped else None,
        rule=Overflow.rule if capped else None,
        trace=ready.session.trace_fingerprint,
        files=tuple(str(each) for each in request.settings.traces),
        plan_fingerprint="" if ready.document is None else ready.document.fingerprint(),
        margin=None if capped else margin(controllers[0], router.gain, router.loop),
    )
    lossy_file.write_lossy(path, made)
    return str(path)


def write_staggered(ready: Prepared, plan: Plan, path: Path) -> str:
    """The staggered plan as an ordinary, lossless plan without a verdict; returns the path. Its past is the first half
    of its own trace, so that the file can say what it was made from."""
    session = ready.session
    settings = session.settings
    split = {
        "by": "time",
        "held_out": HELD_OUT_SHARE,
        "seed": settings.seed,
        "window_steps": settings.window_steps,
        "window_seconds": settings.window_seconds,
        "phase": settings.phase,
        "workloads": list(settings.workloads),
    }
    made = document(
        plan,
        layer_ids=session.meta.layers,
        topology=session.topology,
        trace=TraceRecord(
            fingerprint=session.trace_fingerprint,
            files=tuple(str(each) for each in settings.traces),
            file_fingerprints=session.file_fingerprints,
            fit={"steps": len(ready.past), "windows": None, "tokens": ready.past.tokens},
            held_out={"steps": len(ready.judged), "windows": None, "tokens": ready.judged.tokens},
            split=split,
        ),
        dispatch=session.bench.rule,
        evidence={},
        verdict={"status": NOT_JUDGED, "findings": []},
        migration={},
        model=session.shape.name,
        model_revision=session.meta.model_revision,
        phase=settings.phase or "",
        parent=ready.document,
    )
    write_plan(path, made)
    return str(path)
