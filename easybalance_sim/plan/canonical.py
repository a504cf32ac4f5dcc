"""Canonical JSON: equal contents give equal bytes, so that a sha256 over them identifies the content.

Keys are sorted, floats are written as their shortest exact decimal, text is UTF-8, and every element of a top-level
list stands on a line of its own so that two plan files can be compared with ordinary tools.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from easybalance_sim.errors import PlanError


def render(content: Mapping[str, Any]) -> str:
    """Canonical text of a JSON object, newline at the end."""
    fields = ",\n".join(f"{_line(name)}:{_field(content[name])}" for name in sorted(content))
    return f"{{\n{fields}\n}}\n"


def digest(value: object) -> str:
    """sha256, as 64 hex digits, of the compact canonical form of a plain value."""
    return hashlib.sha256(_line(value).encode()).hexdigest()


def plain(value: object, where: str = "$") -> Any:
    """`value` with numpy scalars, arrays, tuples and mappings turned into what JSON holds; -0.0 becomes 0.0.

    Raises `PlanError` naming the path of a number that is not finite or of a value that JSON cannot hold.
    """
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist(), where)
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    return _scalar(value, where)


def _field(value: Any) -> str:
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict | list | tuple):
        return "[\n" + ",\n".join(_line(item) for item in value) + "\n]"
    return _line(value)


def _line(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise PlanError(f"key {key!r} is not text", where=where)
    return _text(key, where)


def _text(value: str, where: str) -> str:
    if not value.isascii() and any(0xD800 <= ord(letter) <= 0xDFFF for letter in value):
        raise PlanError(f"text {value!a} cannot be written as UTF-8", where=where, fix="rename it")
    return value


def _scalar(value: object, where: str) -> bool | int | float | None:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value + 0.0
        raise PlanError(f"{value} is not a finite number", where=where, fix="leave it out or write null")
    raise PlanError(f"a {type(value).__name__} cannot be written to a plan file", where=where)
