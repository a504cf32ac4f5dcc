"""What sensors see of the plan under test, and which hot-spot rule tells what stays hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.arrays import frozen
from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.planning.session import Listener
from easybalance_sim.replay.dispatch import prepare as prepare_dispatch
from easybalance_sim.replay.engine import links
from easybalance_sim.simulate.sensing.judging import DetectorRequest, judge_detectors
from easybalance_sim.simulate.sensing.metrics import Served
from easybalance_sim.simulate.sensing.summary import SensingRequest, sense


def section(ready: Prepared, tell: Listener) -> dict[str, Any]:
    """Metrics on a 50 ms clock, and every rule against the next second."""
    session, plan = ready.session, ready.plan
    node = session.topology.node_of_rank
    bench = session.bench
    served = Served(
        plan=plan,
        dispatch=prepare_dispatch(bench.rule, plan, frozen(node, np.int32), bench.seed, session.meta.layers),
        route=links(session.topology, bench.mode),
        cost=ready.cost(plan),
        shape=session.shape,
        hbm_bytes_per_s=session.hardware.hbm_bytes_per_s,
        recorded_ranks=bench.recorded_ranks,
    )
    steps = ready.judged
    fast = max(ready.request.sensor_ms / 1e3, SensingRequest.clock_s)
    asked = SensingRequest(fast_s=fast, trend_s=max(SensingRequest.trend_s, fast))
    seen = sense(steps, served, node, asked, tell.progress("watching the ranks", Amount(len(steps), "steps")))
    rules = DetectorRequest(window_s=ready.request.sensor_ms / 1e3, seed=bench.seed)
    series = 2 * plan.layers + 2
    advance = tell.progress("judging hot-spot rules", Amount(series, "series"))
    found = judge_detectors(steps, plan, node, rules, advance, speed=session.topology.speed)
    return {"metrics": seen.to_dict(), "detectors": found.to_dict()}
