"""What the arguments of a model's forward pass say of its tokens: rows, padding, what the cache holds already."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray, IntArray
from easybalance_sim.errors import UsageError

_PADDING = "give a 2-D attention_mask, or batches without padding and no mask"


@dataclass(frozen=True, kw_only=True, eq=False)
class Forward:
    """One forward pass. real: bool[B, S] which of its tokens are no padding · tokens: int64[B, S] their ids, or None ·
    before: int64[B] tokens of each row that the cache holds · goes_on: whether it holds any position."""

    real: BoolArray
    tokens: AnyArray | None
    before: IntArray
    goes_on: bool

    @property
    def positions(self) -> IntArray:
        """int64[B, S] position of each token in its row."""
        return self.before[:, None] + np.cumsum(self.real, axis=1) - 1


def named_arguments(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names that the model's `forward` gives them, in its order."""
    try:
        bound = inspect.signature(model.forward).bind_partial(*args, **kwargs)
    except (TypeError, ValueError):
        return {str(place): value for place, value in enumerate(args)} | dict(kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {f"{name}[{place}]": one for place, one in enumerate(value)}
        else:
            found[name] = value
    return found


def forward_of(kwargs: Mapping[str, Any]) -> Forward:
    """Read named arguments as Hugging Face models take them; of other modules the first tensor is the tokens: ids
    [B, S], hidden states [B, S, H], or [S, H] of one request. Raises `UsageError` when rows or padding cannot be
    told."""
    named = [kwargs.get(name) for name in ("input_ids", "inputs_embeds")]
    first = next((one for one in (*named, *kwargs.values()) if hasattr(one, "is_floating_point")), None)
    if first is None or first.ndim not in (2, 3):
        raise UsageError("the call has no tensor of tokens", fix="call the model with input_ids, or [B, S, H] states")
    hidden = first.is_floating_point()
    shape = (1, int(first.shape[0])) if hidden and first.ndim == 2 else tuple(int(n) for n in first.shape[:2])
    mask = kwargs.get("attention_mask")
    past, tokens = _past(kwargs), None if hidden else _numpy(first)
    if mask is None:
        before = np.full(shape[0], past)
        return Forward(real=np.ones(shape, np.bool_), tokens=tokens, before=before, goes_on=past > 0)
    if not hasattr(mask, "ndim") or mask.ndim != 2 or mask.shape[0] != shape[0] or mask.shape[1] < shape[1]:
        described = "x".join(str(n) for n in mask.shape) if hasattr(mask, "shape") else type(mask).__name__
        raise UsageError(f"attention_mask ({described}) does not say which tokens are padding", fix=_PADDING)
    whole = _numpy(mask) != 0
    past = past or whole.shape[1] - shape[1]
    # A cache of fixed size comes with a mask of that size, its tokens in front.
    end = min(past + shape[1], whole.shape[1])
    now, earlier = whole[:, end - shape[1] : end], whole[:, : end - shape[1]]
    return Forward(real=now, tokens=tokens, before=earlier.sum(axis=1), goes_on=past > 0)


def _past(kwargs: Mapping[str, Any]) -> int:
    """Positions in the cache: an object with `get_seq_length`, or the older tuples of keys and values."""
    for value in kwargs.values():
        if hasattr(value, "get_seq_length"):
            # A cache of linear attention alone has no length; the mask tells then.
            with contextlib.suppress(ValueError):
                return int(value.get_seq_length())
    old = kwargs.get("past_key_values")
    return int(old[0][0].shape[-2]) if isinstance(old, tuple | list) and old else 0


def _numpy(tensor: Any) -> AnyArray:
    array: AnyArray = tensor.detach().cpu().numpy()
    return array
