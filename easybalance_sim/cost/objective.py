"""One number per plan, in seconds per step: what the planner minimises."""

from __future__ import annotations

from easybalance_sim.errors import UsageError

STEPS_BETWEEN_PLANS = 100_000
"""Steps that a plan is assumed to live: about an hour of decode at 30-40 ms per step."""


def objective_seconds(
    step_seconds_p99: float,
    cross_node_bytes_per_step: float,
    migration_seconds: float,
    *,
    rdma_bytes_per_s: float,
    ranks: int,
    replan_steps: int = STEPS_BETWEEN_PLANS,
) -> float:
    """J = λ1 · tail step seconds + λ2 · cross-node bytes per step + λ3 · migration seconds.

    λ1 = 1. λ2 = 1 / (ranks · rdma_bytes_per_s): the bytes as seconds on the RDMA links of all ranks, the part that the
    tail's own communication term does not see when it hides behind compute. λ3 = 1 / replan_steps: moving weights is
    paid once per plan and shared by the steps it lives.
    Raises `UsageError` for a rate, ranks or steps that are not > 0.
    """
    if rdma_bytes_per_s <= 0 or ranks < 1 or replan_steps < 1:
        raise UsageError("RDMA bandwidth, ranks and steps between plans must be > 0", where="objective")
    link_seconds = cross_node_bytes_per_step / (ranks * rdma_bytes_per_s)
    return step_seconds_p99 + link_seconds + migration_seconds / replan_steps
