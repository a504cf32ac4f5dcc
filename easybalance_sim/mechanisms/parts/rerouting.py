"""Everything else that chooses other experts than the router: caps inside a step, factors, diversion, rotation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from easybalance_sim.amounts import Amount
from easybalance_sim.mechanisms.parts.feedback import Router
from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.offsets.controllers import HEAT, LAYER, Controller
from easybalance_sim.simulate.offsets.loop import Mechanism, Outcome, run
from easybalance_sim.simulate.offsets.stability import oscillation
from easybalance_sim.simulate.quality.judged import Judged, judged
from easybalance_sim.simulate.rerouting.diversion import Diversion
from easybalance_sim.simulate.rerouting.overflow import Overflow, are_logits
from easybalance_sim.simulate.rerouting.rotation import STRIPED, Rotation
from easybalance_sim.simulate.rerouting.tiers import Tiers, full_rerouting, graded
from easybalance_sim.simulate.steps.recorded import rank_loads

CAPS = (1.5, 1.3, 1.2, 1.1, 1.05)
USUAL_CAP = 1.1


def caps(ready: Prepared) -> tuple[float, ...]:
    """Those asked for, or the usual ones."""
    return CAPS if ready.request.cap is None else (ready.request.cap,)


def mechanisms(ready: Prepared, offset: Controller, *, logits: bool) -> Iterator[tuple[str, Plan, Mechanism]]:
    """(name of the placement, placement, mechanism): caps on the plan under test and on the best placement of the same
    memory, the others on the plan alone. offset: a light one, which is tried under a cap and on the other placement ·
    logits: scores are below 0, too, which a factor below 1 would raise; then there are no tiers."""
    plan = ready.plan
    bases = [("plan", plan), *((name, other) for name, other in ready.others.items() if other.slots == plan.slots)]
    for name, base in bases[:2]:
        for cap in caps(ready):
            yield name, base, Overflow(cap=cap)
        if base is not plan and ready.request.cap is None:
            yield name, base, offset
    if ready.request.cap is not None:
        return
    load = ready.past.counts.sum(axis=0)
    others: tuple[Mechanism, ...] = (
        Overflow(cap=USUAL_CAP, inner=offset),
        Overflow(cap=USUAL_CAP, rule="least"),
        Overflow(cap=USUAL_CAP, rule="drop"),
        Tiers(tiers=((1.05, 0.9),), signal=HEAT),
        Tiers(tiers=((1.05, 0.8),), signal=LAYER),
        graded(HEAT, ready.judged.step_s),
        full_rerouting(),
        Diversion(share=0.1, signal=LAYER, seed=ready.session.settings.seed),
        Rotation(active=max(1, plan.ranks - 1), kind=STRIPED, load=load),
    )
    for mechanism in others:
        if not (logits and isinstance(mechanism, Tiers)):
            yield "plan", plan, mechanism


def section(ready: Prepared, router: Router, offset: Controller, tell: Listener) -> tuple[dict[str, Any], list[Judged]]:
    """Every mechanism beside the run without."""
    logits = are_logits(router.scores)
    if logits:
        tell.note("scores are logits: factors on them (tiers) would raise those below 0 and are left out")
    todo = list(mechanisms(ready, offset, logits=logits))
    advance = tell.progress("re-routing", Amount(len(todo) * len(ready.judged), "steps"))
    rows = []
    for name, plan, mechanism in todo:
        outcome = run(mechanism, router.scores, plan, router.loop, advance=advance)
        rows.append(judged(mechanism, outcome, plan, on=name, stable=settles(mechanism, outcome, router, plan)))
    return {"runs": [row.to_dict() for row in rows]}, rows


def settles(mechanism: Mechanism, outcome: Outcome, router: Router, plan: Plan) -> bool | None:
    """Of a loop over steps, beside the plan alone; True for what acts within a step or by the clock."""
    inner = mechanism.inner if isinstance(mechanism, Overflow) else mechanism
    if inner is None or isinstance(inner, Rotation):
        return True
    if router.scores.is_frozen:
        return None
    steps = router.scores.steps
    without = rank_loads(steps.counts[router.loop.warm_up :], plan)
    return not oscillation(outcome.judged, without, router.loop).unstable
