"""Reads `.pt` files of PyTorch without running anything in them.

Only `torch.load(weights_only=True)` opens them: tensors, numbers, texts, lists and dictionaries. Whatever else a file
holds is refused by PyTorch before it is made. PyTorch itself is the extra `[torch]`.
"""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.errors import TraceError, UsageError

PLAIN = (bool, int, float, str, bytes, type(None))
SAFE_FROM = (2, 6)
"""The first PyTorch whose `weights_only` cannot be led to run code (CVE-2025-32434)."""
NOT_READ = "not a PyTorch file of tensors and plain values, or damaged"


def read_pt(path: Path) -> Any:
    """What `torch.save` wrote: dictionaries, lists, tuples and plain values, tensors as NumPy arrays.

    Raises `UsageError` when PyTorch is missing or too old to be safe, `TraceError` for a damaged file and one that
    holds anything else.
    """
    torch, where = require_torch(path), str(path)
    _require_safe(torch, where)
    if not path.is_file():
        raise TraceError("no such file", where=where, fix="check the path")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _plain(torch.load(path, weights_only=True, map_location="cpu"), torch)
    # A damaged file may raise anything from inside PyTorch.
    except Exception as error:
        raise TraceError(
            f"{NOT_READ} ({type(error).__name__})", where=where, fix="dump it again; pickled objects are never read"
        ) from error


def require_torch(path: Path) -> Any:
    """PyTorch, for the file at `path`. Raises `UsageError` when it is missing."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UsageError(
            "a .pt file needs PyTorch", where=str(path), fix="in a clone of ebsim: pip install '.[torch]'"
        ) from error


def _require_safe(torch: Any, where: str) -> None:
    numbers = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if numbers is None or tuple(int(number) for number in numbers.groups()) < SAFE_FROM:
        raise UsageError(
            f"PyTorch {torch.__version__} may run code hidden in a .pt file (CVE-2025-32434)",
            where=where,
            fix="pip install 'torch>=2.6'",
        )


def _plain(value: Any, torch: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _array(value, torch)
    if isinstance(value, dict):
        return {key: _plain(inner, torch) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(inner, torch) for inner in value)
    if isinstance(value, PLAIN):
        return value
    raise TypeError(type(value).__name__)


def _array(tensor: Any, torch: Any) -> Any:
    # A stride of 0, as a damaged file may have, makes a few bytes look like any number of values.
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError("tensor is larger than its storage")
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.numpy()).reshape(tuple(tensor.shape))
