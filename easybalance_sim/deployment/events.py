"""What happens in a scenario, and when, as far as its file says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.simulate.serving.arrivals.patterns.burst import Pattern as Burst

MOST = 100
"""Events that are told; a burst every second is no news after a while."""


def events(scenario: Scenario) -> list[dict[str, Any]]:
    """`{at_s, name}` inside the run, in order: tenants that come and leave, bursts, plans made anew."""
    end = scenario.run.duration_s
    found = [(at, name) for at, name in (*_tenants(scenario), *_plans(scenario)) if 0 < at < end]
    return [{"at_s": at, "name": name} for at, name in sorted(found)[:MOST]]


def _tenants(scenario: Scenario) -> Iterator[tuple[float, str]]:
    for tenant in scenario.arrivals.tenants:
        yield tenant.from_s, f"{tenant.name} comes"
        if tenant.until_s is not None:
            yield tenant.until_s, f"{tenant.name} leaves"
        if isinstance(tenant, Burst):
            end = min(scenario.run.duration_s, tenant.until_s or float("inf"))
            for at in _times(tenant.from_s + tenant.burst_from_s, tenant.every_s, end):
                yield at, f"{tenant.name} burst"
                yield min(at + tenant.burst_s, end), "burst over"


def _plans(scenario: Scenario) -> Iterator[tuple[float, str]]:
    if scenario.rebalance is not None:
        every = scenario.rebalance.interval_s
        yield from ((at, "plan made anew") for at in _times(every, every, scenario.run.duration_s))


def _times(first: float, every: float, end: float) -> list[float]:
    """From `first` on, once where nothing comes again."""
    return [float(at) for at in np.arange(first, end, every)[:MOST]] if every else [first]
