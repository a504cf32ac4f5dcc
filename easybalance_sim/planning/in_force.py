"""The plan in force as a run meets it: its file, and what is left of it when ranks were lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from easybalance_sim.cluster.topology import Topology
from easybalance_sim.errors import PlanError
from easybalance_sim.plan.planfile import PlanDocument, read_plan
from easybalance_sim.plan.survivors import Survivors, surviving_ranks, survivors, topology_of
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.planning.session import Listener, Session, open_session
from easybalance_sim.planning.whose import tell_of_another_model
from easybalance_sim.trace.dataset import open_trace


@dataclass(frozen=True, kw_only=True, eq=False)
class InForce:
    """document: the plan's file · topology: the cluster that there is now · left: None when no rank was lost."""

    document: PlanDocument
    topology: Topology
    left: Survivors | None


def tell_if_flattered(document: PlanDocument, session: Session, drawn: Mapping[str, Any], tell: Listener) -> None:
    """Note when the plan in force was fitted on the same files under another split: it has seen what is held out."""
    shared = set(document.trace.file_fingerprints) & set(session.file_fingerprints)
    same = document.trace.fingerprint == session.trace_fingerprint
    if (shared or same) and not (same and dict(document.trace.split) == dict(drawn)):
        tell.note(
            "the plan in force was made from this trace under another split: it has seen traffic that is held out "
            "here, which flatters it and plans that start from it"
        )


def _require_model(document: PlanDocument, request: PlanRequest) -> None:
    """Before its cluster is taken for the trace's."""
    meta = open_trace(request.settings.traces).meta
    if (document.layer_ids, document.experts) != (meta.layers, meta.experts):
        raise PlanError(
            f"the plan in force is for {len(document.layers)} layers × {document.experts} experts, the trace has "
            f"{len(meta.layers)} × {meta.experts} (or other layer ids)",
            where="--current",
            fix="give the plan of the model that was recorded",
        )


def open_in_force(request: PlanRequest, tell: Listener) -> tuple[Session, InForce | None]:
    """The session of a run and the plan in force, if there is one; its cluster stands in when none was said.

    Raises `EbsimError` subclasses as `open_session`, and `UsageError` when the lost ranks are not those of the plan.
    """
    if request.current is None:
        return open_session(request.settings, tell), None
    document = read_plan(request.current)
    _require_model(document, request)
    if not request.lost_ranks:
        whole = document.topology.topology()
        session = open_session(request.settings, tell, whole)
        tell_of_another_model(document, session, tell, "the plan in force")
        return session, InForce(document=document, topology=whole, left=None)
    ranks = surviving_ranks(document.topology.ranks, request.lost_ranks)
    topology = topology_of(document.topology.topology(), ranks, request.settings.slots_per_rank)
    left = survivors(document.plan(), ranks)
    left.require_room(topology)
    session = open_session(replace(request.settings, slots_per_rank=None), tell, topology)
    tell_of_another_model(document, session, tell, "the plan in force")
    tell.note(
        f"{topology.ranks} of {document.topology.ranks} ranks are left; {int(left.lost.sum())} experts (over all "
        "layers) have no replica there and must be fetched by any plan (--policy repair --force writes one that moves "
        "nothing else)"
    )
    return replace(session, held=left.held), InForce(document=document, topology=topology, left=left)
