"""Requests sent where the experts of their topic are, on a placement planned together with that."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cost.layer import LayerCost, layer_cost
from easybalance_sim.errors import UsageError
from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.memory import kv_room
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.admission.judged import MODES, Course
from easybalance_sim.simulate.admission.run import STAGES, Question, what_if


def section(ready: Prepared, tell: Listener) -> dict[str, Any] | None:
    """Every placement with every admission, judged on requests that neither has seen; None where they are too few."""
    session, topology = ready.session, ready.topology

    def cost(plan: Plan, mode: str) -> LayerCost:
        return layer_cost(session.hardware, session.shape, topology, plan.slots_per_rank, mode, session.phase)

    mode = session.bench.mode if session.bench.mode in MODES else MODES[0]
    question = Question(
        course=Course(topology=topology, cost=cost, window=ready.window),
        mode=mode,
        grain="node" if topology.nodes > 1 else "rank",
        kv_bytes_per_token=round(kv_room(session).token_bytes),
        knowledge=("probe", "workload") if len(ready.whole.workloads) > 1 else ("probe",),
        seed=session.settings.seed,
    )
    try:
        return what_if(ready.whole, question, tell.progress("admitting by topic", STAGES)).to_dict()
    except UsageError as reason:
        tell.note(f"no admission by topic: {reason}")
        return None
