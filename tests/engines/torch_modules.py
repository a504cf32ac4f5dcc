"""Small PyTorch models with made-up routers. PyTorch is looked up at run time, so that type checks need none."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import pytest

from tests.engines.conftest import REQUIRED


def needed(name: str) -> Any:
    """A package; where it is not installed the tests are skipped, or fail where engines are required."""
    if find_spec(name) is None and not os.environ.get(REQUIRED):
        pytest.skip(f"needs {name}, which is not installed", allow_module_level=True)
    return importlib.import_module(name)


torch: Any = needed("torch")

HIDDEN, EXPERTS, TOP_K = 6, 8, 2


def module(kind: str, forward: Callable[..., Any], **parts: Any) -> Any:
    """A module whose class is called `kind`; parts: its submodules, parameters and plain values."""
    made = type(kind, (torch.nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def weights(rows: int = EXPERTS) -> Any:
    return torch.nn.Parameter(torch.randn(rows, HIDDEN))


def linear_router() -> Any:
    """Returns logits only, as older Hugging Face models do."""
    return torch.nn.Linear(HIDDEN, EXPERTS, bias=False)


def ids_first_router() -> Any:
    """(ids, weights), unsorted."""

    def forward(self: Any, x: Any) -> Any:
        values, ids = (x.reshape(-1, HIDDEN) @ self.weight.T).sigmoid().topk(TOP_K, sorted=False)
        return ids.flip(1), values.flip(1)

    return module("AnyRouter", forward, weight=weights())


def scattered_router() -> Any:
    """(weights over all experts, ids), as GPT-OSS had it."""

    def forward(self: Any, x: Any) -> Any:
        logits = x.reshape(-1, HIDDEN) @ self.weight.T
        values, ids = logits.topk(TOP_K)
        return torch.zeros_like(logits).scatter(1, ids, values.softmax(1)), ids

    return module("AnyRouter", forward, weight=weights())


def block(router: Any, name: str = "gate", experts: int = EXPERTS) -> Any:
    """A router beside its experts, none of which does anything."""

    def forward(self: Any, x: Any) -> Any:
        getattr(self, name)(x)
        return x + 0.01

    parts = {name: router, "experts": torch.nn.ModuleList([torch.nn.Identity() for _ in range(experts)])}
    return module("Block", forward, **parts)


def model(layers: Sequence[Any], **parts: Any) -> Any:
    """Blocks one after the other over hidden states."""

    def forward(self: Any, hidden: Any, attention_mask: Any = None, past_key_values: Any = None) -> Any:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden

    return module("Model", forward, layers=torch.nn.ModuleList(layers), **parts)


class Cache:
    """What tells how many positions are cached."""

    def __init__(self, length: int) -> None:
        self.length = length

    def get_seq_length(self) -> int:
        return self.length
