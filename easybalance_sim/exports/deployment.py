"""What is known of the engine's start when a file is checked: from the model's name or config.json and a few flags."""

from __future__ import annotations

from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.exports.engine_file import Deployment


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
