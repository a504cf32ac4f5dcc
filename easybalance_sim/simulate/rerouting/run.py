"""All re-routing mechanisms side by side on one placement: what each gains, senses and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from easybalance_sim.arrays import AnyArray
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.offsets.controllers import HEAT, LAYER
from easybalance_sim.simulate.offsets.loop import Loop, Mechanism, Untouched, run
from easybalance_sim.simulate.offsets.scores import FROZEN_NOTE, Scores
from easybalance_sim.simulate.quality.judged import Judged, judged
from easybalance_sim.simulate.rerouting.diversion import Diversion
from easybalance_sim.simulate.rerouting.overflow import Overflow
from easybalance_sim.simulate.rerouting.rotation import STRIPED, Rotation
from easybalance_sim.simulate.rerouting.tiers import factor_tier, full_rerouting, graded

CAPS = (1.5, 1.3, 1.2, 1.1, 1.05)


@dataclass(frozen=True, kw_only=True)
class Request:
    """caps: of in-step overflow re-routing · caps_only: without tiers, diversion and rotation, which are here to be
    seen to lose · mean_utilisation: of ranks, None = heavy tiers go by load / mean · loop: of the sensors, its warm-up
    is not judged · seed: of drawn tokens."""

    caps: tuple[float, ...] = CAPS
    caps_only: bool = False
    mean_utilisation: float | None = None
    loop: Loop = field(default_factory=Loop)
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Rerouting:
    """rows: the placement alone first · notes: what limits them."""

    rows: tuple[Judged, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For reports."""
        return {"rows": [row.to_dict() for row in self.rows], "notes": list(self.notes)}


def reroute(
    scores: Scores,
    plan: Plan,
    request: Request | None = None,
    past_load: AnyArray | None = None,
    advance: Callable[[int], None] = lambda mechanisms: None,
) -> Rerouting:
    """Every mechanism of `usual` on a placement. past_load: [L, E] assignments that tell striped groups which experts
    are hot · advance: told of mechanisms that are done.

    Raises what `offsets.loop.run` does.
    """
    request = request or Request()
    rows = []
    for mechanism in (Untouched(), *usual(request, scores.steps.step_s, plan.ranks, past_load)):
        rows.append(judged(mechanism, run(mechanism, scores, plan, request.loop), plan))
        advance(1)
    return Rerouting(rows=tuple(rows), notes=(FROZEN_NOTE,) if scores.is_frozen else ())


def usual(request: Request, step_s: float, ranks: int, past_load: AnyArray | None = None) -> Sequence[Mechanism]:
    """What is worth a look: caps, and the schemes that are proposed in their place."""
    found: list[Mechanism] = [Overflow(cap=cap) for cap in request.caps]
    if request.caps:
        found += [Overflow(cap=min(request.caps), rule=rule) for rule in ("least", "drop")]
    if request.caps_only:
        return tuple(found)
    found += [factor_tier(0.9, HEAT), factor_tier(0.9, LAYER), factor_tier(0.8, LAYER)]
    found += [
        graded(HEAT, step_s, (1.05, 1.10, 1.20), request.mean_utilisation),
        graded(LAYER, step_s, (1.05, 1.15, 1.30), request.mean_utilisation),
        full_rerouting(),
    ]
    drawn = ((0.1, HEAT), (0.1, LAYER), (0.2, LAYER))
    found += [Diversion(share=share, signal=signal, seed=request.seed) for share, signal in drawn]
    if ranks > 1:
        found += [Rotation(active=ranks - 1), Rotation(active=ranks - 1, kind=STRIPED, load=past_load)]
        found += [Rotation(active=(ranks + 1) // 2, kind=STRIPED, load=past_load)]
    return tuple(found)
