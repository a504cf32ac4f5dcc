"""The replica chosen per step, on the placement that has replicas: the plan under test or the alternative with more
slots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from easybalance_sim.amounts import Amount
from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.replica_choice.compare import Request, compare


def with_replicas(ready: Prepared) -> tuple[str, Plan] | None:
    """(name, plan) that replicas are chosen on, None when no placement has any."""
    plans = {"plan": ready.plan, **ready.others}
    return next(((name, plan) for name, plan in plans.items() if plan.redundant_slots), None)


def section(ready: Prepared, tell: Listener) -> dict[str, Any] | None:
    """Every rule with its sensor, its price in microseconds and what is left of the gain."""
    found = with_replicas(ready)
    if found is None:
        return None
    name, plan = found
    request = Request(mode=ready.session.bench.mode, warm_up=ready.warm_up, choice_us=dict(ready.request.choice_us))
    topology = replace(ready.topology, slots_per_rank=plan.slots_per_rank)
    advance = tell.progress("choosing replicas per step", Amount(len(ready.judged) * len(request.rules), "steps"))
    rows = compare(ready.judged, plan, topology, ready.cost(plan), request, advance)
    return {"placement": name, "slots": plan.slots, **rows.to_dict()}
