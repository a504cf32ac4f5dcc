"""Micro-batches at different layers that contend for ranks, and the order in which ranks serve them."""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.amounts import Amount
from easybalance_sim.mechanisms.prepare import Prepared
from easybalance_sim.planning.session import Listener
from easybalance_sim.simulate.layer_queue.queue import RULES
from easybalance_sim.simulate.layer_queue.report import IN_FLIGHT, simulate_queue
from easybalance_sim.simulate.layer_queue.service import by_cost


def section(ready: Prepared, tell: Listener) -> dict[str, Any]:
    """Throughput and latency by micro-batches in flight and rule; a layer is its experts and its all-to-all."""
    plan, session = ready.plan, ready.session
    times = by_cost(ready.cost(plan), plan, ready.topology, session.meta.top_k, np.zeros_like)
    advance = tell.progress("ordering micro-batches", Amount(len(IN_FLIGHT) * len(RULES), "cases"))
    found = simulate_queue(ready.scored, plan, times, advance=advance)
    return {**found.to_dict(), "explained": found.explained()}
