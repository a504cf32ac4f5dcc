"""What every mechanism gains beside what it costs, lossless ones first, and the front of those that nothing beats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from easybalance_sim.amounts import Amount
from easybalance_sim.mechanisms.prepare import Prepared, alternative
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener
from easybalance_sim.policies import NotApplicable
from easybalance_sim.simulate.quality.judged import Judged
from easybalance_sim.simulate.quality.lossless import (
    PLAN_DELAY,
    chance_alone,
    least_loaded,
    lossless,
    placed,
    replanned,
)
from easybalance_sim.simulate.quality.pareto import table_of

REPLAN_S = (1.0, 3.0)
"""Seconds between plans made anew, each from as many seconds before."""


def lossless_rows(ready: Prepared, tell: Listener) -> list[Judged]:
    """What chance alone makes of ranks, as a yardstick; the plan and the alternatives, those with replicas with the
    least loaded one chosen, too; greedy plans made anew all the time; a window plan that has seen the judged steps."""
    counts, window = ready.scored.counts, ready.window
    chance = chance_alone(ready.scored, ready.plan.ranks, ready.session.settings.seed)
    rows = [lossless("chance alone", chance, ready.plan.slots, window=window, floor=True)]
    for name, plan in {"plan": ready.plan, **ready.others}.items():
        rows.append(placed(name, counts, plan, window))
        if plan.redundant_slots:
            rows.append(least_loaded(name, counts, plan, window))
    return [*rows, *_replanned(ready, tell), *_hindsight(ready)]


def _replanned(ready: Prepared, tell: Listener) -> Iterator[Judged]:
    """Without a past that is long enough there are none."""
    greedy = {name: plan for name, plan in ready.others.items() if plan.policy.startswith("eplb")}
    advance = tell.progress("planning anew", Amount(len(greedy) * len(REPLAN_S), "runs"))
    for name, plan in greedy.items():
        for seconds in REPLAN_S:
            if len(ready.past) > PLAN_DELAY:
                yield _made_anew(ready, name, plan, seconds)
            advance(1)


def _made_anew(ready: Prepared, name: str, plan: Plan, seconds: float) -> Judged:
    every = max(1, round(seconds / ready.scored.step_s))
    topology = replace(ready.topology, slots_per_rank=plan.slots_per_rank)
    seed = ready.session.settings.seed
    loads = replanned(ready.past, ready.scored, topology, every, every, window=ready.window, seed=seed)
    return lossless(f"{name}, every {seconds:g} s", loads, plan.slots, window=ready.window)


def _hindsight(ready: Prepared) -> Iterator[Judged]:
    """At the memory of the plan under test."""
    try:
        plan = alternative(ready.session, "window_search", ready.scored, ready.plan.slots_per_rank, ready.window)
    except NotApplicable:
        return
    row = placed("floor: window plan in hindsight", ready.scored.counts, plan, ready.window)
    yield replace(row, floor=True)


def section(rows: Sequence[Judged]) -> dict[str, Any]:
    """Rows with their fronts."""
    return table_of(rows).to_dict()
