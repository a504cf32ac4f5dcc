"""`capacity`: the JSON object of `ebsim capacity`, notes aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from easybalance_sim.amounts import Amount
from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.prepare import AFTER, BEFORE, EVEN, Prepared, ground_of_scenario, prepare
from easybalance_sim.deployment.request import scenario_of, tell_changes
from easybalance_sim.deployment.scenario import Scenario, is_claim
from easybalance_sim.deployment.sizing import sections
from easybalance_sim.deployment.sizing.attainment import FEW_REQUESTS
from easybalance_sim.deployment.sizing.request import CapacityRequest
from easybalance_sim.deployment.sizing.search import (
    Search,
    fewest_gpus,
    rates_over,
    rates_with_replicas,
    replica_layouts,
    split_layouts,
)
from easybalance_sim.deployment.sizing.variants import layout_of
from easybalance_sim.errors import UsageError
from easybalance_sim.planning.session import Listener

STILL_RISES = 0.1
"""Of the time per token over the scored time, from which a longer run would find a lower rate."""
USUAL_TRIES = 10
"""Numbers of GPUs that a search asks about, for a progress line."""


def capacity(request: CapacityRequest, tell: Listener) -> dict[str, Any]:
    """Answer what was asked. Raises `EbsimError` subclasses for a scenario that does not fit together."""
    path = request.scenario.scenario
    if path.is_file() and is_claim(path):
        raise UsageError(
            "is a capacity claim, which brings no requests to serve",
            where=str(path),
            fix=f"take it apart with ebsim offset --scenario {path} or ebsim simulate {path}",
        )
    scenario = scenario_of(request.scenario)
    tell_changes(request.scenario, scenario, tell)
    if request.gpus or request.replicas or request.parallel:
        for pool in scenario.pools:
            layout_of(pool, scenario.shape.experts)
    first = scenario.run.seed
    search = Search(
        seeds=tuple(range(first, first + request.seeds)),
        tolerance=request.tolerance,
        ground=ground_of_scenario(scenario, tell),
    )
    prepared = prepare(scenario, tell, search.ground)
    report = sections.head(request, prepared, search.seeds)
    report["highest_rate"] = _highest(search, prepared, tell)
    for note in _doubts(report["highest_rate"]["stated"]):
        tell.note(note)
    if request.gpus:
        rate = request.scenario.rate_per_s or prepared.workload.rate_per_s
        report["fewest_gpus"] = [_fewest(search, scenario, pool, rate, tell) for pool in scenario.pools]
    if request.replicas:
        report["replicas"] = [_replicas(search, scenario, pool, request.replicas, tell) for pool in scenario.pools]
    if request.parallel:
        report["parallelism"] = [_splits(search, scenario, pool, tell) for pool in scenario.pools]
    return report


def _highest(search: Search, prepared: Prepared, tell: Listener) -> dict[str, Any]:
    """Of the plan before, the plan after and even ranks; and the first two at the other end of what overlap can do."""
    mine = prepared.scenario.run.overlap
    other = "none" if mine == "full" else "full"
    wanted = [(BEFORE, mine), (AFTER, mine), (EVEN, mine), (BEFORE, other), (AFTER, other)]
    advance = tell.progress("searching the highest rate", Amount(len(wanted), "searches"))
    found: dict[str, Any] = {}
    for key, overlap in wanted:
        found.setdefault(overlap, {})[key] = sections.rate(search.rate(prepared, key, overlap))
        advance(1)
    for ends in found.values():
        ends |= sections.gain(ends[BEFORE]["rate_per_s"], ends[AFTER]["rate_per_s"], search.tolerance)
    return {"stated": found[mine], "bracket": {"serial": found["none"], "overlapped": found["full"]}}


def _doubts(stated: dict[str, Any]) -> Iterator[str]:
    """Why a longer run would answer otherwise."""
    held = [stated[key]["at"] for key in (BEFORE, AFTER) if stated[key]["at"]]
    few = min((one["requests"] for one in held), default=FEW_REQUESTS)
    if few < FEW_REQUESTS:
        yield f"{few} requests decide: give --seeds or a longer --duration for a finer answer"
    rises = max((one["tpot_rise"] for one in held), default=0.0)
    if rises > STILL_RISES:
        yield (
            f"the time per token still rises, by {100 * rises:.0f} % over the scored time at the highest rate: a "
            "longer --duration finds a lower rate"
        )


def _fewest(search: Search, scenario: Scenario, pool: Pool, rate: float, tell: Listener) -> dict[str, Any]:
    advance = tell.progress(f"{pool.role}: trying numbers of GPUs", Amount(USUAL_TRIES, "tries"))
    found = fewest_gpus(search, scenario, pool.role, rate, advance)
    advance(max(0, USUAL_TRIES - len(found.tried)))
    others = {one.role: one.gpus for one in scenario.pools if one.role != pool.role}
    return sections.fleets(found, scenario.slo.share) | {"others_stay": others}


def _replicas(
    search: Search, scenario: Scenario, pool: Pool, spares: tuple[int, ...], tell: Listener
) -> dict[str, Any]:
    """Rates by spare slots, and the fewest whose rate is as good as the best."""
    layouts = replica_layouts(pool, scenario.shape.experts, spares)
    advance = tell.progress(f"{pool.role}: comparing replicas", Amount(len(layouts), "layouts"))
    rows = [sections.layout(row) for row in rates_with_replicas(search, scenario, pool.role, layouts, advance)]
    worth = max(sections.WORTH, search.tolerance)
    return {
        "role": pool.role,
        "rows": rows,
        "worth_buying": sections.enough(rows, worth),
        "worth_frac": worth,
    }


def _splits(search: Search, scenario: Scenario, pool: Pool, tell: Listener) -> dict[str, Any]:
    """Rates by GPUs that share experts and attention, and the best split under either plan."""
    layouts = split_layouts(scenario, pool)
    advance = tell.progress(f"{pool.role}: comparing expert and tensor parallelism", Amount(len(layouts), "layouts"))
    rows = [sections.layout(row) for row in rates_over(search, scenario, pool.role, layouts, advance)]
    worth = max(sections.WORTH, search.tolerance)
    best = {key: sections.best(rows, key, worth) for key in (BEFORE, AFTER)}
    return {"role": pool.role, "rows": rows, "best": best, "worth_frac": worth}
