"""What goes into the sidecar of an exported file: which plan it is, and what was proven about it."""

from __future__ import annotations

from typing import Any

from easybalance_sim import __version__
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.plan.planfile import PlanDocument

UNKNOWN = "unknown"


def record_of(document: PlanDocument, deployment: Deployment, engine: str, schema: str = "") -> dict[str, Any]:
    """The content of a sidecar, without a date: the same plan gives the same bytes."""
    model_known = deployment.moe_layers is not None
    return {
        "engine": engine,
        "schema": schema,
        "fingerprint": document.fingerprint(),
        "tool_version": __version__,
        "model": deployment.model if document.model == UNKNOWN and deployment.model else document.model,
        "model_revision": document.model_revision,
        "phase": document.phase,
        "policy": document.policy,
        "dispatch": document.dispatch,
        "ranks": len(document.plan_slots_per_rank),
        "node_of_rank": list(document.topology.node_of_rank),
        "slots_per_rank": list(document.plan_slots_per_rank),
        "experts": document.experts,
        "layers": list(document.layer_ids),
        "hidden_layers": deployment.hidden_layers,
        "mtp_layers": list(deployment.mtp_layers) if model_known else None,
        "trace_fingerprint": document.trace.fingerprint,
        "evidence": document.evidence,
        "verdict": document.verdict,
    }
