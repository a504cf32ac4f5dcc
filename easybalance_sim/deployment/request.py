"""What `ebsim simulate` is asked for: a scenario file, and what is to be different from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from easybalance_sim.deployment.fields import SERVED_OVERLAPS, Arrivals, Pool, Routing
from easybalance_sim.deployment.policy_names import require_plan_name
from easybalance_sim.deployment.scenario import Scenario, load_scenario
from easybalance_sim.errors import UsageError
from easybalance_sim.planning.session import Listener, require_choice


@dataclass(frozen=True, kw_only=True)
class SimulateRequest:
    """scenario: the file · the others: in place of what it says; empty or None = as it says. plan, baseline: a policy,
    "auto" or a plan file · trace: of routing · arrivals: request traces by tenant, one without a name under "" ·
    rate_per_s, duration_s: of requests · ttft_s, tpot_s: of the SLO."""

    scenario: Path
    plan: str = ""
    baseline: str = ""
    trace: tuple[Path, ...] = ()
    arrivals: Mapping[str, Path] = field(default_factory=dict)
    rate_per_s: float | None = None
    duration_s: float | None = None
    overlap: str = ""
    seed: int | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None


def scenario_of(request: SimulateRequest) -> Scenario:
    """The scenario with its changes. Raises `UsageError` naming the file and field, or the flag, that does not fit."""
    _require_sound(request)
    found = load_scenario(request.scenario)
    run: dict[str, Any] = {"duration_s": request.duration_s, "overlap": request.overlap or None, "seed": request.seed}
    if request.duration_s is not None and found.run.warm_up_s >= request.duration_s:
        # A run cut short keeps the same share for warming up.
        run["warm_up_s"] = found.run.warm_up_s / found.run.duration_s * request.duration_s
    slo = {"ttft_s": request.ttft_s, "tpot_s": request.tpot_s}
    changes: dict[str, Any] = {
        "run": replace(found.run, **_said(run)),
        "slo": replace(found.slo, **_said(slo)),
        "routing": _routing(request, found),
        "arrivals": _arrivals(request, found),
        **{name: _pool(request, getattr(found, name)) for name in ("pool", "prefill", "decode")},
    }
    return replace(found, **changes)


def tell_changes(request: SimulateRequest, scenario: Scenario, tell: Listener) -> None:
    """Note what else changed with what was asked for."""
    said = load_scenario(request.scenario).run.warm_up_s
    if scenario.run.warm_up_s != said:
        tell.note(
            f"the warm-up is cut from {said:g} to {scenario.run.warm_up_s:g} s with the run, and may not fill the "
            "deployment"
        )


def _require_sound(request: SimulateRequest) -> None:
    numbers = {
        "--rate": request.rate_per_s,
        "--duration": request.duration_s,
        "--ttft-ms": request.ttft_s,
        "--tpot-ms": request.tpot_s,
    }
    for flag, value in numbers.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError("is no positive number", where=flag, fix="give more than 0")
    for flag, name in (("--plan", request.plan), ("--baseline", request.baseline)):
        if name:
            require_plan_name(name, flag)
    if request.overlap:
        require_choice("--overlap", request.overlap, SERVED_OVERLAPS)


def _routing(request: SimulateRequest, found: Scenario) -> Routing:
    if not request.trace:
        return found.routing
    return Routing(trace=tuple(str(path) for path in request.trace), serve=found.routing.serve)


def _arrivals(request: SimulateRequest, found: Scenario) -> Arrivals:
    if not request.arrivals:
        return found.arrivals
    files = {name: str(path) for name, path in request.arrivals.items()}
    return Arrivals(file=files[""]) if list(files) == [""] else Arrivals(files=files)


def _pool(request: SimulateRequest, pool: Pool | None) -> Pool | None:
    """Plans for two pools come under one name, so that a file can fit one of them at most."""
    if pool is None:
        return None
    said = _said({"after": request.plan or None, "before": request.baseline or None})
    return replace(pool, placement=replace(pool.placement, **said))


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
