"""The model of a scenario: a known one, a config.json, widths that are written out, or a known one with changes."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from typing import Any

import msgspec

from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cluster.shapes import load_shape
from easybalance_sim.errors import EbsimError, UsageError


def model_of(table: dict[str, Any]) -> ModelShape:
    """The shape that a [model] table describes.

    name alone: a known model · config: a Hugging Face config.json · like: a known model some of whose fields change ·
    all other keys are fields of `ModelShape`; layers: ids of the MoE layers, or how many there are, which are then all
    layers that there are. Raises `msgspec.ValidationError` for a value of the wrong type, `UsageError` for the rest.
    """
    fields = msgspec.structs.asdict(msgspec.convert({"model": table}, _document()).model)
    said = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
    like, config = said.pop("like", ""), said.pop("config", "")
    if like and config:
        raise UsageError("like and config exclude each other", where="model", fix="leave one out")
    if list(said) == ["name"] and not (like or config):
        like = said.pop("name")
    try:
        base = load_shape(like or config) if like or config else None
        return dataclasses.replace(base, **_layered(said)) if base else ModelShape(**_layered(said))
    except TypeError as error:
        missing = str(error).rpartition(":")[2].strip()
        raise UsageError(f"lacks {missing}", where="model", fix="or name a known model with name or like") from error
    except EbsimError as error:
        raise UsageError(error.what, where=f"model: {error.where}", fix=error.fix) from error


def _layered(said: dict[str, Any]) -> dict[str, Any]:
    """A number of layers spelled out as ids."""
    layers = said.get("layers")
    if not isinstance(layers, int):
        return said
    return {"hidden_layers": layers, "mtp_layers": (), **said, "layers": tuple(range(layers))}


@cache
def _document() -> Any:
    """A struct with a field `model`, so that messages name it: the fields of `ModelShape` and the two ways to say a
    model, none of which must be there."""
    hints = typing.get_type_hints(ModelShape) | {"layers": int | tuple[int, ...], "like": str, "config": str}
    names = [*(field.name for field in dataclasses.fields(ModelShape)), "like", "config"]
    fields = [(name, hints[name] | msgspec.UnsetType, msgspec.UNSET) for name in names]
    model = msgspec.defstruct("Model", fields, forbid_unknown_fields=True, kw_only=True)
    return msgspec.defstruct("Document", [("model", model)])
