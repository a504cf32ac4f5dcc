"""What is known of the engine's start when a file is written or checked: from the model and a few flags."""

from __future__ import annotations

from dataclasses import replace

from easybalance_sim.cluster.shapes import find_shape, load_shape
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.plan.planfile import PlanDocument


def deployment_of(
    model: str = "",
    *,
    ranks: int | None = None,
    experts: int | None = None,
    redundant: int | None = None,
    layers: tuple[int, ...] | None = None,
) -> Deployment:
    """The deployment of a known model, of a `config.json`, or of what the flags alone say; flags win.

    layers: absolute ids of the MoE layers. Raises `ProfileError` for a model that is not known.
    """
    if not model:
        return Deployment(ranks=ranks, experts=experts, moe_layers=layers, redundant=redundant)
    shape = load_shape(model)
    return Deployment(
        ranks=ranks,
        experts=experts or shape.experts,
        hidden_layers=shape.hidden_layers or None,
        moe_layers=layers or shape.layers,
        mtp_layers=shape.mtp_layers,
        redundant=redundant,
    )


def deployment_for(document: PlanDocument, model: str = "", hidden_layers: int | None = None) -> Deployment:
    """Where a plan is to be loaded: `model`, or the model that the plan names where it is a known one.

    hidden_layers: all layers, dense ones included; wins over the model's. Raises `ProfileError` as `deployment_of`.
    """
    named = document.model if find_shape(document.model) else ""
    slots = sum(document.plan_slots_per_rank)
    known = deployment_of(model or named, ranks=document.topology.ranks, redundant=slots - document.experts)
    return replace(known, hidden_layers=hidden_layers or known.hidden_layers)
