"""Which plan is taken where the scenario leaves it open: what serves best with requests that no candidate has seen.

The requests that plans are made from are divided once more: candidates are made from either half and serve the other.
The winner is then made anew from both. None of those that stand for requests in service takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import FloatArray
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.ground import Ground
from easybalance_sim.deployment.placing import place
from easybalance_sim.deployment.stations import Station, station
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.simulate.serving.engine import serve
from easybalance_sim.simulate.serving.profiles import Profiles
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
DRAWS, MOST_REQUESTS = 2, 6_000
"""Draws for either half. Requests: of the scenario's, from the first on, that candidates serve in each draw."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """policy · time_s: mean seconds of a request in the pool, refused_frac: of the requests, with routing that was set
    aside for choosing."""

    policy: str
    time_s: float
    refused_frac: float


@dataclass(frozen=True, kw_only=True)
class Choice:
    """worth: places of the candidates for which the plan before, the first of them, would be given up, best first."""

    candidates: tuple[Candidate, ...]
    worth: tuple[int, ...]

    @property
    def taken(self) -> int:
        """Place of the one that is taken, 0 = the plan before stays."""
        return self.worth[0] if self.worth else 0

    @property
    def policy(self) -> str:
        """Of the one that was taken."""
        return self.candidates[self.taken].policy


def choose(
    halves: Sequence[Ground], pool: Pool, session: Session, before: Sequence[Plan], load: Workload, hidden: float,
    tell: Listener, *, proposals: int, prompt_tokens: float, seed: int,
) -> Choice:  # fmt: skip
    """The policies worth taking, see `worth_taking`. halves: see `Ground.rehearsals` · before: the plan that is there,
    as it is made from each · load: the scenario's requests · proposals: of a search, over all halves. Policies that do
    not apply are left out."""
    made = [_plans(half, session, tell, max(1, proposals // len(halves))) for half in halves]
    names = [name for name in made[0] if all(name in plans for plans in made)]
    load = load.take(np.arange(load.requests) < MOST_REQUESTS)
    advance = tell.progress("choosing a plan", Amount((len(names) + 1) * len(halves), "trials"))
    columns = []
    for half, first, plans in zip(halves, before, made, strict=True):
        rows = [drawn(half.routed, load, seed + more) for more in range(DRAWS)]
        for plan in (first, *(plans[name] for name in names)):
            found = station(half, pool, session, plan, prompt_tokens=prompt_tokens, seed=seed, layers=LAYERS)
            columns.append(_served(pool, found, load, rows, hidden, seed))
            advance(1)
    # [halves, plans, draws, 2] -> [2, plans, halves × draws]
    shape = (len(halves), len(names) + 1, DRAWS, 2)
    times, refused = np.array(columns).reshape(shape).transpose(3, 1, 0, 2).reshape(2, shape[1], -1)
    means = zip((before[0].policy, *names), times.mean(axis=1).tolist(), refused.mean(axis=1).tolist(), strict=True)
    candidates = tuple(Candidate(policy=name, time_s=time, refused_frac=share) for name, time, share in means)
    return Choice(candidates=candidates, worth=worth_taking(times, refused))


def _served(
    pool: Pool, made: Station, load: Workload, rows: Sequence[Profiles], hidden: float, seed: int
) -> list[tuple[float, float]]:
    """Mean seconds in the pool of those that are served and the share that is refused, in every draw."""
    model, found = replace(made.model, hidden=hidden), []
    for draw, each in enumerate(rows):
        run = serve(load, each, made.limits, model, role=pool.role, seed=seed + draw)
        turned_away = int(run.refused.sum())
        found.append((run.present_s / max(1, run.arrived - turned_away), turned_away / max(1, run.arrived)))
    return found


def worth_taking(times: FloatArray, refused: FloatArray) -> tuple[int, ...]:
    """Places of the plans that are better than the plan before, the first, in every draw: they refuse fewer requests by
    `WORTH`, or no more and are faster by `WORTH`. Those that refuse the fewest requests come first, of these the
    fastest: a plan that turns requests away is quick with the others.

    times: float64[plans, draws] · refused: float64[plans, draws] shares of the requests."""
    fewer = (refused < refused[0] - WORTH).all(axis=1)
    faster = ((refused <= refused[0]) & (times < (1 - WORTH) * times[0])).all(axis=1)
    able = np.flatnonzero(fewer | faster)
    return tuple(able[np.lexsort((times[able].mean(axis=1), refused[able].mean(axis=1)))].tolist())


def _plans(ground: Ground, session: Session, tell: Listener, proposals: int) -> dict[str, Plan]:
    found = {}
    for name in (*CANDIDATES, *(NODES if session.topology.nodes > 1 else ())):
        try:
            found[name] = place(ground, session, name, tell, proposals=proposals)
        except UsageError:
            # A search that cannot win, or experts too few for the ranks: the others compete.
            continue
    return found
