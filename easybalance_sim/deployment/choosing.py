"""Which plan is taken where the scenario leaves it open: what served best with the routing that plans are made from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import Ground
from easybalance_sim.deployment.placing import place
from easybalance_sim.deployment.stations import station
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.routed import drawn
from easybalance_sim.simulate.serving.workload import Workload

SLOTS, NODES = ("window_search", "eplb"), ("eplb_hierarchical", "eplb_relabelled")
CANDIDATES = (*SLOTS, *(f"{name}_no_redundancy" for name in SLOTS), "round_robin")
"""Beside the plan before, and `NODES` where there is more than one."""
LAYERS = 8
"""That stand for all of a model when candidates are compared."""
WORTH = 0.02
"""Of the mean time in a pool: the least gain for which the plan before is given up, in every draw of routing and
chance. Plans for uniform routing differ by up to 1.5 % through what is drawn to fit their step models."""
DRAWS, MOST_REQUESTS = 3, 6_000
"""Requests: of the scenario's, from the first on, that candidates serve in each draw."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """policy · time_s: mean seconds of a request in the pool, with the routing of the fitting half."""

    policy: str
    time_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """plan: the one that was taken, place `taken` of the candidates, of which the plan before is the first."""

    plan: Plan
    candidates: tuple[Candidate, ...]
    taken: int


def choose(
    ground: Ground, pool: Pool, session: Session, before: Plan, load: Workload, hidden: float, tell: Listener, *,
    proposals: int, prompt_tokens: float, seed: int,
) -> Choice:  # fmt: skip
    """The plan with the least mean time in the pool. before: the plan that is there, and stays unless another gains
    `WORTH` · load: the scenario's requests. Policies that do not apply are left out."""
    plans = [before, *_plans(ground, session, tell, proposals)]
    kept = np.arange(load.requests) < MOST_REQUESTS
    load, fitting = load.take(kept), replace(ground, routed=ground.fitting)
    rows = [drawn(fitting.routed, load, seed + more) for more in range(DRAWS)]
    advance = tell.progress("choosing a plan", len(plans))
    times = []
    for plan in plans:
        made = station(fitting, pool, session, plan, prompt_tokens=prompt_tokens, seed=seed, layers=LAYERS)
        model = replace(made.model, hidden=hidden)
        runs = [
            serve(load, each, made.limits, model, role=pool.role, seed=seed + more) for more, each in enumerate(rows)
        ]
        times.append([run.present_s / max(1, run.arrived - int(run.refused.sum())) for run in runs])
        advance(1)
    taken = taken_of(np.array(times))
    names = [
        Candidate(policy=plan.policy, time_s=float(np.mean(time))) for plan, time in zip(plans, times, strict=True)
    ]
    return Choice(plan=plans[taken], candidates=tuple(names), taken=taken)


def taken_of(times: FloatArray) -> int:
    """Place of the plan with the least mean time; 0, the plan before, unless that is less by `WORTH` in every draw.
    times: float64[plans, draws]."""
    best = int(times.mean(axis=1).argmin())
    return best if (times[best] < (1 - WORTH) * times[0]).all() else 0


def _plans(ground: Ground, session: Session, tell: Listener, proposals: int) -> list[Plan]:
    found = []
    for name in (*CANDIDATES, *(NODES if session.topology.nodes > 1 else ())):
        try:
            found.append(place(ground, session, name, tell, proposals=proposals))
        except UsageError:
            # A search that cannot win, or experts too few for the ranks: the others compete.
            continue
    return found
