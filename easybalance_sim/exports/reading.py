"""Reads what engine files are made of (JSON, YAML) without trusting any of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError

_LAYER_DIGITS = 10
_MOST_LAYER = 10 ** (_LAYER_DIGITS - 1)
_ENDLESS = re.compile(r"[0-9a-fA-F_:]{301}")


def read_text(path: Path) -> str:
    """The UTF-8 text of `path`. Raises `PlanError` when it cannot be read or is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except UnicodeDecodeError as error:
        raise PlanError(f"not text: byte {error.start} is not UTF-8", where=str(path)) from error


def parse_json(text: str, where: str) -> Any:
    """The value that JSON `text` holds. Raises `PlanError`, also where a key stands twice: engines take the last."""
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _distinct(pairs, where))
    except (ValueError, RecursionError) as error:
        raise PlanError(f"not JSON: {error}", where=where) from error


def parse_yaml(text: str, where: str) -> Any:
    """The value that YAML `text` holds, plain types only. Raises `PlanError`, also where a key stands twice."""
    import yaml

    # Hexadecimal and base-60 numbers of any length are read, but Python cannot write them in a message.
    if _ENDLESS.search(text):
        raise PlanError("not YAML of a placement: a number of more than 300 digits", where=where)

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Plain types only, and no key twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            scalars = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            _distinct([(self.construct_object(key), None) for key in scalars], where)
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

    try:
        return yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, AttributeError, RecursionError) as error:
        raise PlanError(f"not YAML: {' '.join(str(error).split())}", where=where) from error


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


def is_whole(value: Any) -> bool:
    """Whether `value` is a whole number of 64 bits, which is what engines make of ids."""
    return type(value) is int and value.bit_length() < 64


def count(value: Any) -> int | None:
    """`value` if it is a whole number, else None."""
    return value if is_whole(value) else None


def layer_number(key: Any, what: str, where: str) -> int:
    """The layer that a key of a mapping names, as number or text. Raises `PlanError`."""
    if type(key) is int and 0 <= key < _MOST_LAYER:
        return key
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < _LAYER_DIGITS:
        return int(key)
    raise PlanError(f"{what} has the key {shown(key)}, expected a layer id", where=where)


def require_layers(keys: Iterable[Any], what: str, where: str) -> tuple[int, ...]:
    """The layers that the keys of a mapping name. Raises `PlanError` where one stands twice ("0" and 0)."""
    layers = tuple(layer_number(key, what, where) for key in keys)
    twice = [layer for layer, times in Counter(layers).items() if times > 1]
    if twice:
        raise PlanError(f"{what} has layer {twice[0]} twice", where=where)
    return layers


SHOWN = 40
"""Characters of a value that a message takes."""


def shown(value: object) -> str:
    """A value for a message, short whatever it is: lists in YAML can stand for more than memory holds."""
    if isinstance(value, str | bytes):
        return _cut(ascii(value[:SHOWN]))
    return _cut(ascii(value)) if isinstance(value, bool | int | float | None) else _kind(value)


def _distinct(pairs: Sequence[tuple[Any, Any]], where: str) -> dict[Any, Any]:
    """The mapping of `pairs`. Raises `PlanError` for a key that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise PlanError(f"the key {shown(twice)} stands twice", where=where, fix="keep one")
    return found


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", int: "a number", float: "a number", type(None): "missing"}
    return names.get(type(value), f"a {type(value).__name__}")
