"""Steps of a run, replayed token by token against the step model that served them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from easybalance_sim.deployment.measure import Measured
from easybalance_sim.deployment.prepare import Prepared
from easybalance_sim.deployment.schedule import under_last
from easybalance_sim.simulate.serving.exact import check
from easybalance_sim.simulate.serving.replayed import replayed


def check_section(prepared: Prepared, run: Measured, place: int) -> dict[str, Any] | None:
    """The comparison for one pool of a run, None where it has no steps."""
    if place >= len(run.service.runs):
        return None
    station, served, seed = run.stations[place], run.service.runs[place], prepared.scenario.run.seed
    session = station.session
    replay = replayed(
        station.plan,
        session.topology,
        session.bench.cost(station.plan),
        data_ranks=station.pool.data_ranks,
        rule=session.bench.rule,
        seed=seed,
        layer_ids=session.meta.layers,
    )
    samples, model = list(served.samples), station.model
    if station.schedule is not None:
        samples, model = under_last(station.schedule, samples, model)
    found = check(samples, served.data_rank, prepared.ground.routed, replay, model, seed=seed)
    if found is None:
        return None
    return {
        "steps": found.steps,
        "tokens": found.tokens,
        "model": asdict(found.model),
        "replayed": asdict(found.replayed),
        "mean_error": found.error("mean_s"),
        "p99_error": found.error("p99_s"),
        "line": found.line,
    }
