"""Which plan is taken where the scenario leaves it open: what serves best with requests that no candidate has seen.

The requests that plans are made from are divided once more: candidates are made from one half and serve the other. The
winner is then made anew from both. None of those that stand for requests in service takes part.
"""

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
"""Of the mean time in a pool, or of the requests that are refused: the least gain for which the plan before is given
up, in every draw of routing and chance. Plans for uniform routing differ by up to 1.5 % through what is drawn to fit
their step models."""
DRAWS, MOST_REQUESTS = 3, 6_000
"""Requests: of the scenario's, from the first on, that candidates serve in each draw."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """policy · time_s: mean seconds of a request in the pool, refused_frac: of the requests, with routing that was set
    aside for choosing."""

    policy: str
    time_s: float
    refused_frac: float


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Place `taken` of the candidates, of which the plan before is the first."""

    candidates: tuple[Candidate, ...]
    taken: int

    @property
    def policy(self) -> str:
        """Of the one that was taken."""
        return self.candidates[self.taken].policy


def choose(
    ground: Ground, pool: Pool, session: Session, before: Plan, load: Workload, hidden: float, tell: Listener, *,
    proposals: int, prompt_tokens: float, seed: int,
) -> Choice:  # fmt: skip
    """The policy to take, see `taken_of`. ground: a rehearsal, see `Ground` · before: the plan that is there, as it is
    made from that ground · load: the scenario's requests. Policies that do not apply are left out."""
    plans = [before, *_plans(ground, session, tell, proposals)]
    load = load.take(np.arange(load.requests) < MOST_REQUESTS)
    rows = [drawn(ground.routed, load, seed + more) for more in range(DRAWS)]
    advance = tell.progress("choosing a plan", len(plans))
    times, refused = np.zeros((2, len(plans), DRAWS))
    for at, plan in enumerate(plans):
        made = station(ground, pool, session, plan, prompt_tokens=prompt_tokens, seed=seed, layers=LAYERS)
        model = replace(made.model, hidden=hidden)
        for draw, each in enumerate(rows):
            run = serve(load, each, made.limits, model, role=pool.role, seed=seed + draw)
            turned_away = int(run.refused.sum())
            times[at, draw] = run.present_s / max(1, run.arrived - turned_away)
            refused[at, draw] = turned_away / max(1, run.arrived)
        advance(1)
    means = zip(plans, times.mean(axis=1).tolist(), refused.mean(axis=1).tolist(), strict=True)
    names = [Candidate(policy=plan.policy, time_s=time, refused_frac=share) for plan, time, share in means]
    return Choice(candidates=tuple(names), taken=taken_of(times, refused))


def taken_of(times: FloatArray, refused: FloatArray) -> int:
    """Place of the plan that refuses the fewest requests and of those has the least mean time; 0, the plan before,
    unless another refuses fewer by `WORTH`, or no more and is faster by `WORTH`, in every draw. A plan that turns
    requests away is quick with the others.

    times: float64[plans, draws] · refused: float64[plans, draws] shares of the requests."""
    fewer = (refused < refused[0] - WORTH).all(axis=1)
    faster = ((refused <= refused[0]) & (times < (1 - WORTH) * times[0])).all(axis=1)
    able = np.flatnonzero(fewer | faster)
    best = np.lexsort((times[able].mean(axis=1), refused[able].mean(axis=1)))
    return int(able[best[0]]) if len(able) else 0


def _plans(ground: Ground, session: Session, tell: Listener, proposals: int) -> list[Plan]:
    found = []
    for name in (*CANDIDATES, *(NODES if session.topology.nodes > 1 else ())):
        try:
            found.append(place(ground, session, name, tell, proposals=proposals))
        except UsageError:
            # A search that cannot win, or experts too few for the ranks: the others compete.
            continue
    return found
