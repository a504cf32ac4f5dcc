"""Reads what engine files are made of (JSON, YAML, PyTorch) without trusting any of it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError, UsageError

_TORCH = "install the extra: pip install 'easybalance-sim[torch]'"


def read_text(path: Path) -> str:
    """The UTF-8 text of `path`. Raises `PlanError` when it cannot be read or is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"not text: byte {error.start} is not UTF-8", where=str(path)) from error


def parse_json(text: str, where: str) -> Any:
    """The value that JSON `text` holds. Raises `PlanError`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"not JSON: {error}", where=where) from error


def parse_yaml(text: str, where: str) -> Any:
    """The value that YAML `text` holds, plain types only. Raises `PlanError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, AttributeError, RecursionError) as error:
        raise PlanError(f"not YAML: {' '.join(str(error).split())}", where=where) from error


def read_torch(path: Path) -> Any:
    """What a `.pt` file holds; tensors on the CPU, nothing is unpickled but tensors and plain types.

    Raises `UsageError` without PyTorch, `PlanError` for a file that cannot be read that way.
    """
    torch = import_torch(str(path))
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except Exception as error:
        # A damaged file makes PyTorch's reader fail in many ways: zip, pickle, key, index, runtime errors.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise PlanError(f"not a PyTorch file of tensors: {reason}", where=str(path)) from error


def import_torch(where: str) -> Any:
    """PyTorch. Raises `UsageError` where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise UsageError(".pt files need PyTorch", where=where, fix=_TORCH) from error


def require_mapping(value: Any, what: str, where: str) -> dict[Any, Any]:
    """`value` if it is a mapping. Raises `PlanError` naming what it should have been."""
    if not isinstance(value, dict):
        raise PlanError(f"{what} is {_kind(value)}, expected a mapping", where=where)
    return value


def require_list(value: Any, what: str, where: str) -> Sequence[Any]:
    """`value` if it is a list. Raises `PlanError` naming what it should have been."""
    if not isinstance(value, list):
        raise PlanError(f"{what} is {_kind(value)}, expected a list", where=where)
    return value


def require_rows(value: Any, what: str, where: str) -> tuple[tuple[Any, ...], ...]:
    """A list of lists as rows, values unchecked. Raises `PlanError` for anything else, and when there is no row."""
    rows = require_list(value, what, where)
    if not rows:
        raise PlanError(f"{what} has no layer", where=where)
    return tuple(tuple(require_list(row, f"row {index} of {what}", where)) for index, row in enumerate(rows))


def count(value: Any) -> int | None:
    """`value` if it is a whole number, else None."""
    return value if type(value) is int else None


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", type(None): "missing"}
    return names.get(type(value), f"a {type(value).__name__}")
