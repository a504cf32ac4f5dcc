"""What is known of the engine's start when a file is written or checked: from the model and a few flags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from easybalance_sim.cluster.shapes import find_shape, load_shape, model_type
from easybalance_sim.exports.checks import EXPORTED_FOR
from easybalance_sim.exports.engine_file import Deployment
from easybalance_sim.exports.sidecar import Sidecar
from easybalance_sim.exports.vllm_expert_map import SCHEMA as EXPERT_MAP
from easybalance_sim.plan.lint import ERROR, Finding
from easybalance_sim.plan.planfile import PlanDocument


def deployment_of(
    model: str = "",
    *,
    ranks: int | None = None,
    experts: int | None = None,
    redundant: int | None = None,
    layers: tuple[int, ...] | None = None,
    schema: str = "",
) -> Deployment:
    """The deployment of a known model, of a `config.json`, or of what the flags alone say; flags win.

    layers: absolute ids of the MoE layers · schema: which of the engine's formats it reads. Raises `ProfileError` for a
    model that is not known.
    """
    if not model:
        return Deployment(ranks=ranks, experts=experts, moe_layers=layers, redundant=redundant, schema=schema)
    shape = load_shape(model)
    return Deployment(
        ranks=ranks,
        experts=experts or shape.experts,
        hidden_layers=shape.hidden_layers or None,
        moe_layers=layers or shape.layers,
        mtp_layers=shape.mtp_layers,
        redundant=redundant,
        model=shape.name,
        model_type=model_type(model),
        groups=shape.groups,
        schema=schema,
    )


def deployment_for(document: PlanDocument, model: str = "", hidden_layers: int | None = None) -> Deployment:
    """Where a plan is to be loaded: `model`, or the model that the plan names where it is a known one.

    hidden_layers: all layers, dense ones included; wins over the model's. Raises `ProfileError` as `deployment_of`.
    """
    named = document.model if find_shape(document.model) else ""
    slots = sum(document.plan_slots_per_rank)
    known = deployment_of(model or named, ranks=document.topology.ranks, redundant=slots - document.experts)
    return replace(known, hidden_layers=hidden_layers or known.hidden_layers)


_FACTS = {
    "ranks": "ranks",
    "experts": "experts",
    "hidden_layers": "layers, dense ones included",
    "moe_layers": "MoE layers",
    "redundant": "redundant experts",
    "schema": "schema",
}
"""Facts of a deployment, as messages call them."""
_UNCHECKED = ("model", "model_type", "groups", "node_of_rank")
"""Facts that no placement is wrong about."""


def with_sidecar(said: Deployment, sidecar: Sidecar) -> tuple[Deployment, tuple[Finding, ...]]:
    """What is said of the engine's start, the rest as the file's sidecar has it; an error for each contradiction."""
    mtp = said.mtp_layers if sidecar.mtp_layers is None else sidecar.mtp_layers
    shape = None if said.model else find_shape(sidecar.model)
    exported = Deployment(
        ranks=sidecar.ranks,
        experts=sidecar.experts,
        hidden_layers=sidecar.hidden_layers,
        moe_layers=tuple(layer for layer in sidecar.layers if layer not in mtp),
        mtp_layers=mtp,
        redundant=sum(sidecar.slots_per_rank) - sidecar.experts,
        model=sidecar.model,
        model_type=model_type(shape.name) if shape else "",
        groups=shape.groups if shape else None,
        node_of_rank=sidecar.node_of_rank,
        schema=sidecar.schema,
    )
    known: dict[str, Any] = {
        name: _first(getattr(said, name), getattr(exported, name)) for name in (*_FACTS, *_UNCHECKED)
    }
    if said.moe_layers is None:
        known["mtp_layers"] = mtp
    return replace(said, **known), tuple(_contradictions(said, exported))


def _first(flag: Any, other: Any) -> Any:
    return other if flag in (None, "", ()) else flag


def _contradictions(said: Deployment, exported: Deployment) -> Iterator[Finding]:
    for name in _FACTS:
        flag, file = getattr(said, name), getattr(exported, name)
        if name == "hidden_layers" and exported.schema == EXPERT_MAP:
            # A model that was not known then may have had its draft layers counted among its layers.
            file = flag if said.layers_with_drafts == exported.layers_with_drafts else file
        if flag not in (None, "") and file not in (None, "") and flag != file:
            message = f"the file was exported for {_words(name, file)}, the engine has {_words(name, flag)}"
            yield Finding(level=ERROR, message=message, rule=EXPORTED_FOR)


def _words(name: str, fact: int | str | tuple[int, ...]) -> str:
    if isinstance(fact, str):
        return f"{_FACTS[name]} {fact}"
    if isinstance(fact, int):
        return f"{fact} {_FACTS[name]}"
    span = f" ({fact[0]} to {fact[-1]})" if fact else ""
    return f"{len(fact)} {_FACTS[name]}{span}"
