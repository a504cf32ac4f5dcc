"""The plans that control loops begin with."""

from __future__ import annotations

from easybalance_sim import policies
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.policies import NotApplicable, Problem
from easybalance_sim.rebalancing.load import Load, windows_of
from easybalance_sim.rebalancing.request import RebalanceRequest
from easybalance_sim.simulate.rebalance.serving import Service, Window

OFFLINE = ("window_search", "window_search_no_redundancy", "eplb")
"""Policies that compete for the offline plan."""


def first_plans(
    request: RebalanceRequest, session: Session, load: Load, first: int, service: Service, tell: Listener
) -> tuple[Plan, Plan]:
    """(the plan in force, the offline plan made from the first windows; the former again when no loop needs it)."""
    problem = Problem(
        forecast=load.tokens[:first].mean(axis=0),
        windows=load.tokens[:first],
        topology=session.topology,
        groups=session.meta.groups,
        seed=request.settings.seed,
        window_steps=float(load.steps[:first].mean()),
        top_k=session.meta.top_k,
        slot_cost=service.slot_cost,
        progress=tell.progress,
    )
    start = _in_force(request, session, problem)
    if not request.plans_offline:
        return start, start
    return start, _offline(problem, [*windows_of(service, load, 0, first)], service, tell)


def _in_force(request: RebalanceRequest, session: Session, problem: Problem) -> Plan:
    if request.current is None:
        return policies.make("contiguous", problem)
    document = read_plan(request.current)
    plan = document.plan()
    if (document.layer_ids, plan.experts, plan.ranks) != (
        session.meta.layers,
        session.meta.experts,
        session.topology.ranks,
    ):
        raise UsageError("the plan in force is for other layers, experts or ranks", where="--current")
    return plan


def _offline(problem: Problem, windows: list[Window], service: Service, tell: Listener) -> Plan:
    """The plan that serves the first windows in the fewest seconds; with and without redundancy compete."""
    found: list[tuple[float, int, Plan]] = []
    for name in OFFLINE:
        try:
            plan = policies.make(name, problem)
        except NotApplicable as reason:
            tell.note(f"{name} is left out: {reason}")
            continue
        seconds = sum(float(service.step_seconds(window, plan).mean()) * window.steps for window in windows)
        found.append((seconds, len(found), plan))
    best = min(found)[2]
    if best.slots < problem.topology.slots:
        tell.note(f"the offline plan is {best.policy}: more slots than {best.slots} would slow a step down")
    return best
