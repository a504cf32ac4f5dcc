"""What placements could have done on the very traffic that a plan is judged on: a plan made from that traffic.

A lower bound holds for every plan but may be far below what one placement for all windows can reach. The best plan that
a search finds with the judged windows before its eyes says where the room ends in practice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from easybalance_sim import policies
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.session import Session
from easybalance_sim.policies import Effort, NotApplicable, Problem
from easybalance_sim.replay.expected import even_imbalances

NAMES = ("eplb", "window_search")


def floor_plan(plan: Plan, judged: LoadWindows, session: Session, effort: Effort) -> Plan:
    """The plan with the lowest mean imbalance on the judged windows, of those made from them with the slots of `plan`,
    and `plan` itself; under an even split. Without a window, `plan`."""
    if len(judged.window) == 0:
        return plan
    problem = Problem(
        forecast=judged.tokens.mean(axis=0),
        windows=judged.tokens,
        topology=replace(session.topology, slots_per_rank=plan.slots_per_rank),
        groups=session.meta.groups,
        seed=session.settings.seed,
        window_steps=float(judged.steps.mean()),
        top_k=session.meta.top_k,
        effort=Effort(proposals=effort.proposals, budget_s=effort.budget_s),
        progress=session.bench.progress,
    )
    found = [plan]
    for name in NAMES:
        try:
            found.append(policies.make(name, problem))
        except NotApplicable:
            continue
    ratio = even_imbalances(judged.tokens, found, session.topology.speed)
    return found[int(np.nanmean(ratio, axis=(1, 2)).argmin())]
