"""Makes the `Problem` that policies place from the fit side of a session's trace."""

from __future__ import annotations

from dataclasses import replace

from easybalance_sim.arrays import FloatArray
from easybalance_sim.cost.layer import layer_cost
from easybalance_sim.cost.slots import SlotCost, slot_cost
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.load.forecast import forecast
from easybalance_sim.load.windows import LoadWindows
from easybalance_sim.plan.migration import resident
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.survivors import repair
from easybalance_sim.planning.in_force import InForce
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Session
from easybalance_sim.policies import Effort, Problem
from easybalance_sim.replay.traffic import Traffic

SEARCHES = ("window_search", "window_search_no_redundancy", "warm_search")
"""Policies that look at re-batched windows."""
TRAFFIC_POLICIES = ("eplb_relabelled", "traffic_search")
"""Policies that look at a token sample."""
SAMPLE_TOKENS = 3000


def problem_of(
    request: PlanRequest, session: Session, traffic: Traffic, windows: LoadWindows, parent: InForce | None
) -> Problem:
    """The fit side as a problem; raises `PlanError` when the plan in force is of another model or cluster."""
    expected = forecast(windows, request.forecast, request.half_life).tokens
    effort = _effort(request, session)
    current = None if parent is None else _current(parent, session, expected)
    held = None
    if current is not None and session.held is not None:
        # The first copy of a lost expert is fetched wherever it goes: where the repaired plan has it, it costs nothing
        # more, and what a plan may move beyond is what is left of the limit.
        held = session.held | resident(current)
        effort = _beyond_repair(effort, int((resident(current) & ~session.held).sum()), request)
    wanted = request.names(len(session.meta.layers) * session.topology.slots)
    searching = any(name in SEARCHES for name in wanted)
    sampling = session.topology.nodes > 1 and any(name in TRAFFIC_POLICIES for name in wanted)
    finer = traffic.finer_windows(windows) if searching else None
    return Problem(
        forecast=expected,
        windows=windows.tokens,
        topology=session.topology,
        groups=session.meta.groups,
        current=current,
        held=held,
        seed=request.settings.seed,
        rebatched=traffic.rebatched_windows(windows, request.settings.seed) if searching else None,
        window_steps=float(windows.steps.mean()),
        top_k=session.meta.top_k,
        finer=None if finer is None else finer.tokens,
        finer_steps=1.0 if finer is None else float(finer.steps.mean()),
        slot_cost=_slot_cost(request, session, windows),
        sample=traffic.token_sample(SAMPLE_TOKENS, session.bench) if sampling else None,
        per_assignment=session.bench.mode == "low_latency",
        effort=effort,
        progress=session.bench.progress,
    )


def _effort(request: PlanRequest, session: Session) -> Effort:
    """The effort with the moves that both limits allow."""
    if request.max_migration_bytes is None:
        return request.effort
    by_bytes = request.max_migration_bytes // session.shape.expert_bytes
    given = request.effort.max_moves
    return replace(request.effort, max_moves=by_bytes if given is None else min(given, by_bytes))


def _beyond_repair(effort: Effort, needed: int, request: PlanRequest) -> Effort:
    """The effort without the moves that even the repaired plan needs."""
    if effort.max_moves is None:
        return effort
    if effort.max_moves < needed:
        by_moves = request.effort.max_moves is not None and request.effort.max_moves < needed
        raise UsageError(
            f"{needed} experts must be fetched for those that were lost, at most {effort.max_moves} may be",
            where="--max-moves" if by_moves else "--max-migration-bytes",
            fix=f"allow {needed} or more, or name fewer lost ranks",
        )
    return replace(effort, max_moves=effort.max_moves - needed)


def _slot_cost(request: PlanRequest, session: Session, windows: LoadWindows) -> SlotCost | None:
    """Seconds per slot at the fit side's mean step; None when the search is to balance tokens."""
    topology = session.topology
    slots = topology.slots_per_rank
    cost = layer_cost(session.hardware, session.shape, topology, slots, session.bench.mode, session.phase)
    if request.objective == "tokens" or (request.objective == "auto" and cost.expert.reasons):
        return None
    per_step = windows.tokens.sum() / len(session.meta.layers) / max(int(windows.steps.sum()), 1)
    return slot_cost(cost, max(1.0, float(per_step) / topology.slots))


def _current(parent: InForce, session: Session, load: FloatArray) -> Plan:
    """The plan in force; repaired for the expected load (float64[L, E]) when ranks were lost."""
    plan = parent.document.plan()
    wanted = (session.meta.layers, session.meta.experts, session.topology.ranks)
    got = (parent.document.layer_ids, plan.experts, plan.ranks if parent.left is None else len(parent.left.old_rank))
    if got != wanted:
        raise PlanError(
            f"the plan in force is for {len(got[0])} layers, {got[1]} experts, {got[2]} ranks; "
            f"the trace and cluster have {len(wanted[0])}, {wanted[1]}, {wanted[2]} (or other layer ids)",
            where="--current",
        )
    return plan if parent.left is None else repair(parent.left, session.topology, load)
