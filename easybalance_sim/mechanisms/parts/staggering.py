"""Ranks relabelled per layer, so that hot layers do not meet on one rank."""

from __future__ import annotations

from typing import Any

from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.staggering.run import STAGES, Request, stagger


def section(ready: Prepared, tell: Listener) -> tuple[dict[str, Any], Plan]:
    """The table of the plan under test, and the staggered plan."""
    shape = ready.session.shape
    request = Request(
        plan=ready.plan,
        past=ready.past,
        judged=ready.scored,
        topology=ready.topology,
        inside_nodes=ready.topology.nodes > 1,
        window=ready.window,
        expert_bytes=0.0 if shape.assumed else float(shape.expert_bytes),
        token_bytes=float(ready.cost(ready.plan).copy_bytes),
        seed=ready.session.settings.seed,
    )
    found = stagger(request, tell.progress("staggering layers", STAGES))
    return found.to_dict(), found.plan
