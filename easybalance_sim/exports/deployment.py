"""What is known of the engine's start when a file is checked: from the model's name or config.json and a few flags."""

from __future__ import annotations

from pathlib import Path

from easybalance_sim.cluster.config_json import layer_counts
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.exports.engine_file import Deployment

_MTP = {"deepseek-v3": 1, "deepseek-v3.2": 1, "glm-4.5": 1, "glm-4.5-air": 1}
"""MTP layers with routed experts of known models, after the last hidden layer (`num_nextn_predict_layers` of their
published config.json)."""


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
    hidden, mtp = _layer_counts(model, shape.name, max(shape.layers) + 1)
    return Deployment(
        ranks=ranks,
        experts=experts or shape.experts,
        hidden_layers=hidden,
        moe_layers=layers or shape.layers,
        mtp_layers=tuple(range(hidden, hidden + mtp)),
        redundant=redundant,
    )


def _layer_counts(model: str, name: str, after_last: int) -> tuple[int, int]:
    """Hidden and MTP layers. The last layer of every known model has experts, so its id tells the hidden layers."""
    path = Path(model)
    for config in (path, path / "config.json"):
        if config.suffix == ".json" and config.is_file():
            return layer_counts(config)
    return after_last, _MTP.get(name, 0)
