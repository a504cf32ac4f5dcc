"""The plans that a deployment is served with, made from requests that none in service stands for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from easybalance_sim import policies
from easybalance_sim.arrays import frozen
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.deployment.ground import Ground
from easybalance_sim.deployment.policy_names import require_plan_name
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import read_plan
from easybalance_sim.planning.in_force import tell_if_flattered
from easybalance_sim.planning.problems import problem_of
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.policies import Effort, NotApplicable

AUTO = ("window_search", "eplb")
"""What "auto" stands for: the first that applies."""
PROPOSALS = 200_000
"""Per layer of a search: a third to a tenth of what `ebsim plan` takes, so that a scenario is planned in seconds."""


def place(ground: Ground, session: Session, name: str, tell: Listener, *, proposals: int = PROPOSALS) -> Plan:
    """The plan that a policy makes from the fitting half on a session's cluster, or the plan of a file.

    name: a policy, "auto", or the path of a plan file (*.json). Raises `UsageError` for an unknown policy or one that
    does not apply, `PlanError` for a file whose plan does not fit.
    """
    if name.endswith(".json"):
        return _of_file(Path(name), ground, session, tell)
    require_plan_name(name, "plan")
    reasons = []
    for policy in AUTO if name == "auto" else (name,):
        try:
            return _made(ground, session, policy, proposals)
        except NotApplicable as reason:
            reasons.append(f"no {policy}: {reason}")
    if name != "auto":
        raise UsageError(reasons[0], where="plan", fix="name another policy")
    raise UsageError("; ".join(reasons), where="plan", fix="give the scenario more slots, or name a policy")


def without_replicas(topology: Topology, experts: int) -> Topology:
    """The same ranks with slots for every expert once, as an engine begins."""
    return replace(topology, slots_per_rank=np.full(topology.ranks, -(-experts // topology.ranks)))


def _made(ground: Ground, session: Session, policy: str, proposals: int) -> Plan:
    request = PlanRequest(
        settings=session.settings, policies=(policy,), split="request", effort=Effort(proposals=proposals)
    )
    traffic = ground.traffic(session)
    plan = policies.make(policy, problem_of(request, session, traffic, traffic.fit_windows(), None))
    return replace(plan, expert_of_slot=frozen(plan.expert_of_slot, np.int32))


def _routed_in_turn(ground: Ground, layers: int) -> bool:
    """Whether so many layers of routing, fewer than the model has, are repeated over it."""
    experts = ground.routed.experts
    return layers < experts.shape[1] and np.array_equal(experts[:, layers:], experts[:, :-layers])


def _of_file(path: Path, ground: Ground, session: Session, tell: Listener) -> Plan:
    document, meta, topology = read_plan(path), session.meta, session.topology
    plan = document.plan()
    wanted = (len(meta.layers), meta.experts, topology.ranks)
    if (plan.experts, plan.ranks) == wanted[1:] and _routed_in_turn(ground, plan.layers):
        tell.note(
            f"{path.name}: its {plan.layers} layers serve the {wanted[0]} of the model in turn, as those of the "
            "routing trace do; one that was made from that trace has seen requests that serve here, which flatters it"
        )
        layer = np.arange(wanted[0]) % plan.layers
        return replace(plan, expert_of_slot=frozen(plan.expert_of_slot[layer], np.int32))
    if (plan.layers, plan.experts, plan.ranks) != wanted:
        raise PlanError(
            f"the plan is for {plan.layers} layers × {plan.experts} experts on {plan.ranks} ranks, the scenario has "
            f"{wanted[0]} × {wanted[1]} on {wanted[2]}",
            where=str(path),
            fix="give a plan that was made for this model and cluster",
        )
    tell_if_flattered(document, session, ground.traffic(session).describe_split(), tell)
    return plan
