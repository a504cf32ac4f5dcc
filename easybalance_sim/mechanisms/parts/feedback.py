"""Router offsets in a closed loop: will they help at all, how high may the gain be, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from easybalance_sim.amounts import Amount
from easybalance_sim.errors import UsageError
from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.mechanisms.request import controller_of
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.offsets.controllers import (
    CLIP_GAPS,
    EXPERT,
    HEAT,
    LAYER,
    MAX,
    PI,
    SIGN,
    Controller,
    I,
    P,
)
from easybalance_sim.simulate.offsets.loop import Loop, Outcome, Untouched, run
from easybalance_sim.simulate.offsets.predictability import predictability
from easybalance_sim.simulate.offsets.scores import FROZEN_GAIN, FROZEN_NOTE, Scores, scores_of
from easybalance_sim.simulate.offsets.stability import (
    LEAST_DELAY,
    REFUSE_SHARE,
    WARN_SHARE,
    PlantGain,
    limit,
    margin,
    oscillation,
    plant_gain,
    safe,
)
from easybalance_sim.simulate.quality.judged import Judged, judged

LEAK = 0.99
ARTICLE_ALPHA = 0.1
"""Of the max-normalised offset, as the EasyBalance article has it."""
AS_WRITTEN = "as written in the article; not offered"
SIGN_GAPS = 0.027
"""Of the sign law, in median gaps: 0.0005 on a router whose gap is 0.0185, the smallest that was tried there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Router:
    """What feedback is simulated on. loop: its sensor · gain: S, doubled where the group mask is frozen · clip: of
    offsets, in score units · without: the run that nothing acts on."""

    scores: Scores
    loop: Loop
    gain: PlantGain
    clip: float
    without: Outcome


def router_of(ready: Prepared) -> Router:
    """Raises `TraceError` for a trace without usable scores, `UsageError` where offsets cannot be told."""
    scores = scores_of(ready.judged)
    loop = Loop(delay=ready.request.delay, window=ready.window, warm_up=ready.warm_up)
    gain = plant_gain(scores, ready.plan)
    if not min(gain.rank, gain.expert) > 0:
        raise UsageError("no load falls where an offset is laid on, so a loop cannot be closed", where="scores")
    if scores.is_frozen:
        gain = replace(gain, rank=gain.rank * FROZEN_GAIN, expert=gain.expert * FROZEN_GAIN)
    return Router(
        scores=scores,
        loop=loop,
        gain=gain,
        clip=CLIP_GAPS * scores.gap,
        without=run(Untouched(), scores, ready.plan, loop),
    )


def usual(router: Router) -> tuple[Controller, ...]:
    """Those with a safe gain, and two that are known from elsewhere: the sign law and the article's; all clipped."""
    lawful = [(P, LAYER), (I, LAYER), (P, HEAT), (P, EXPERT)]
    leak = {I: LEAK}
    found = [
        safe(Controller(law=law, signal=signal, leak=leak.get(law, 1.0), clip=router.clip), router.gain, router.loop)
        for law, signal in lawful
    ]
    sign = Controller(law=SIGN, signal=EXPERT, gain=SIGN_GAPS * router.scores.gap, clip=router.clip)
    return (*found, sign, Controller(law=MAX, signal=HEAT, gain=ARTICLE_ALPHA, clip=router.clip))


def as_written() -> Controller:
    """The article's offset without the clip that it does not have: for comparison beside the clipped one, never
    offered."""
    return Controller(law=MAX, signal=HEAT, gain=ARTICLE_ALPHA, clipped=False)


def asked_for(ready: Prepared, router: Router) -> Controller:
    """The controller of the request, "layer-P" and a gain, or a safe one.

    Raises `UsageError` for an unknown name, a law without a safe gain when none is given, and a gain above 0.7 of the
    limit.
    """
    request = ready.request
    signal, law = controller_of(request.controller)
    bare = Controller(law=law, signal=signal, leak=LEAK if law == I else 1.0, clip=router.clip)
    if request.gain is None:
        return safe(bare, router.gain, router.loop)
    integral = request.gain if law == I else request.gain / 10 if law == PI else 0.0
    asked = replace(bare, gain=0.0 if law == I else request.gain, integral=integral)
    found = margin(asked, router.gain, router.loop)
    if found.refuses and found.limit is not None and not request.force:
        best = safe(bare, router.gain, router.loop)
        raise UsageError(
            f"{asked.name} is {found.share:.2f} of what is stable: the loop would swing and choose wrong experts",
            where="--gain",
            fix=f"refused above {request.gain * found.limit * REFUSE_SHARE:.3g}, warned of from "
            f"{request.gain * found.limit * WARN_SHARE:.3g}; safe is {best.name}; --force to see it",
        )
    return asked


def section(
    ready: Prepared, router: Router, controllers: Sequence[Controller], tell: Listener
) -> tuple[dict[str, Any], list[Judged]]:
    """Prediction, limits, and every controller beside the run without; beside the usual ones the article's, too."""
    compared = () if ready.request.controller else (as_written(),)
    advance = tell.progress("closing the loop", Amount((len(controllers) + len(compared)) * len(ready.judged), "steps"))
    rows, found = [], []
    for controller in (*controllers, *compared):
        outcome = run(controller, router.scores, ready.plan, router.loop, advance=advance)
        swing = None
        if not router.scores.is_frozen:
            swing = oscillation(outcome.judged, router.without.judged, router.loop)
        near = margin(controller, router.gain, router.loop)
        stable = None if swing is None else not swing.unstable
        remark = "" if controller.clipped else AS_WRITTEN
        row = judged(controller, outcome, ready.plan, on="plan", stable=stable, remark=remark)
        found.append(row)
        rows.append(
            {
                **row.to_dict(),
                "share_of_limit": near.share,
                "warns": near.warns,
                "refused": near.refuses,
                "stability": None if swing is None else swing.to_dict(),
                "latency_gain": outcome.balance.step_mean < router.without.balance.step_mean,
            }
        )
    head = {
        "predictability": predictability(ready.judged, ready.plan, router.loop).to_dict(),
        "scores": _scores_section(router),
        "gain": router.gain.to_dict(),
        "clip": router.clip,
        "sensor": {"delay_steps": router.loop.delay, "window_steps": router.loop.window},
        "largest_stable": _limits(router),
        "none": router.without.balance.to_dict(),
    }
    return {**head, "runs": rows}, found


def _scores_section(router: Router) -> dict[str, Any]:
    scores = router.scores
    return {
        "mode": scores.mode,
        "explained_frac": scores.explained,
        "median_gap": scores.gap,
        "precision": scores.precision,
        "note": FROZEN_NOTE if scores.is_frozen else "",
    }


def _limits(router: Router) -> list[dict[str, float]]:
    """The largest stable loop gain K by delay, of P and of an integral, and the gains that this is on ranks."""
    rows = []
    for delay in sorted({1, 2, 3, 4, 8, router.loop.delay}):
        most = {law: limit(router.loop.window, delay, float(law == P), float(law == I), 1.0) for law in (P, I)}
        rows.append(
            {
                "delay_steps": delay,
                "P": most[P],
                "I": most[I],
                "P_gain": most[P] / router.gain.rank,
                "I_gain": most[I] / router.gain.rank,
                "taken": float(delay == max(router.loop.delay, LEAST_DELAY)),
            }
        )
    return rows
