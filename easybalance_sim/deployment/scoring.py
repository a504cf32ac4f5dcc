"""Which requests of a run are scored, the same for every command."""

from __future__ import annotations

import math

from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.simulate.serving.pools import Service


def scored_span(scenario: Scenario, service: Service) -> tuple[float, float]:
    """Seconds from and to which the scored requests arrive: from the warm-up to the run's duration. Requests that end
    earlier are scored until the last answer, over whose seconds they are served; all of them where none comes after the
    warm-up."""
    run, load = scenario.run, service.workload
    # One that is turned away at once arrives when the last answer is given.
    last_s = math.nextafter(max(one.end_s for one in service.runs), math.inf)
    to_s = run.duration_s if lasts(scenario, service) else last_s
    if ((load.arrival_s >= run.warm_up_s) & (load.arrival_s < to_s)).any():
        return run.warm_up_s, to_s
    return 0.0, last_s


def lasts(scenario: Scenario, service: Service) -> bool:
    """Whether requests come as long as the run: streams by what they say, those of a file by the gap between them."""
    load = service.workload
    if tenants := scenario.arrivals.tenants:
        ends_s = max(math.inf if one.until_s is None else one.until_s for one in tenants)
    else:
        ends_s = load.span_s * (1 + 1 / max(1, load.requests - 1))
    return ends_s >= scenario.run.duration_s
