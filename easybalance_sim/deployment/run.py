"""`simulate`: a scenario served with the plan before and the plan after, at both ends of what overlap can do."""

from __future__ import annotations

from typing import Any

from easybalance_sim.amounts import Amount
from easybalance_sim.deployment import report
from easybalance_sim.deployment.measure import measure
from easybalance_sim.deployment.prepare import AFTER, BEFORE, EVEN, prepare, workload_at
from easybalance_sim.deployment.request import SimulateRequest, scenario_of, tell_changes
from easybalance_sim.planning.session import Listener

SAMPLED_STEPS = 48
"""That are replayed token by token."""
DRAWS = 3
"""Of routing and chance, for how firm the ratios are."""

FIRST_TOKEN = "the first token reaches the client when the decode pool takes a request in: TTFT holds transfer and wait"
"""What is to be known of two pools."""


def simulate(request: SimulateRequest, tell: Listener) -> dict[str, Any]:
    """The JSON object of `ebsim simulate`, notes aside. Raises `EbsimError` subclasses."""
    scenario = scenario_of(request)
    tell_changes(request, scenario, tell)
    prepared = prepare(scenario, tell)
    if len(scenario.pools) > 1:
        tell.note(FIRST_TOKEN)
    load = prepared.workload if request.rate_per_s is None else workload_at(scenario, request.rate_per_s)
    seed, mine, other = scenario.run.seed, scenario.run.overlap, "none" if scenario.run.overlap == "full" else "full"
    wanted = [(BEFORE, mine), (AFTER, mine), (EVEN, mine), (BEFORE, other), (AFTER, other)]
    more = [(key, run_seed) for run_seed in range(seed + 1, seed + DRAWS) for key in (BEFORE, AFTER)]
    total = load.requests * (len(wanted) + len(more)) * len(scenario.pools)
    advance = tell.progress("serving", Amount(total, "requests"))
    runs = [
        measure(
            prepared,
            key,
            overlap=overlap,
            workload=load,
            samples=SAMPLED_STEPS if overlap == mine and key != EVEN else 0,
            advance=advance,
        )
        for key, overlap in wanted
    ]
    again = [measure(prepared, key, workload=load, seed=run_seed, advance=advance) for key, run_seed in more]
    # Of two pools not every request comes to the second.
    advance(total)
    return report.of(request.scenario, prepared, runs[:3], runs[3:], [*runs[:2], *again])
