"""A hardware profile as TOML text, as `cluster.hardware` reads it back."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from easybalance_sim.cluster.hardware import HardwareProfile


def profile_text(profile: HardwareProfile) -> str:
    """The whole profile: numbers and texts first, then its tables, defaults left out of none."""
    fields = profile_fields(profile)
    plain = [f"{name} = {_value(value)}" for name, value in fields.items() if not _is_table(value)]
    tables = [_table(name, value) for name, value in fields.items() if _is_table(value)]
    return "\n\n".join(["\n".join(plain), *tables]) + "\n"


def profile_fields(profile: HardwareProfile) -> dict[str, Any]:
    """The profile as plain values, named as in the file; a table that there is not is left out."""
    values: dict[str, Any] = msgspec.to_builtins(profile)
    return {name: value for name, value in values.items() if value is not None}


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], dict))


def _table(name: str, value: Any) -> str:
    head, rows = (f"[{name}]", [value]) if isinstance(value, dict) else (f"[[{name}]]", value)
    return "\n\n".join("\n".join([head, *(f"{key} = {_value(entry)}" for key, entry in row.items())]) for row in rows)


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON writes texts, booleans and finite numbers as TOML does.
    return json.dumps(value, ensure_ascii=False)
