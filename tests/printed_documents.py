"""Reports of real runs as JSON, cut to what their tables read, and how each is printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from easybalance_sim.cli import (
    capacity_table,
    compare,
    explain_table,
    offload_table,
    offset_table,
    phases_table,
    rebalance_table,
    report_table,
    rollout_table,
    simulate_table,
    sweep_table,
    trace_loads,
    trace_summary,
)

FOLDER = Path(__file__).parent / "golden" / "printed"
PRINTED: dict[str, Callable[[Any], str]] = {
    "plan": report_table.of_plan,
    "phases": phases_table.of_phases,
    "sweep": sweep_table.of_sweep,
    "rebalance": rebalance_table.of,
    "rebalance-sweep": rebalance_table.of,
    "offset": offset_table.of,
    "offset-claim": offset_table.of_scenario,
    "offset-admission": offset_table.of,
    "offload": offload_table.of,
    "simulate": simulate_table.of,
    "capacity": capacity_table.of,
    "rollout": rollout_table.of_rollout,
    "explain": explain_table.of,
    "explain-expert": explain_table.of,
    "explain-rank": explain_table.of,
    "explain-layer": explain_table.of,
    "trace-summary": trace_summary._text,
    "trace-loads": trace_loads._text,
    "compare": compare._text,
}
"""What prints the document of that name."""

_NAMES = {"policy", "name", "fault", "mechanism", "rule", "labels", "experts", "attention"}
_PLACES = {"point", "place", "nodes"}


def document(name: str) -> Any:
    """The document of that name."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def stretched(content: Any, key: str = "") -> Any:
    """A document with the same shape, names of 40 and more characters, numbers of more digits."""
    if isinstance(content, dict):
        return {name: stretched(value, name) for name, value in content.items()}
    if isinstance(content, list):
        return [stretched(value, key) for value in content]
    if isinstance(content, str):
        return f"{content}_without_any_redundancy" if key in _NAMES else content
    if isinstance(content, bool) or content is None or key in _PLACES:
        return content
    return content * 12_345 if isinstance(content, int) else content * 1234.5


class Read(Mapping[str, Any]):
    """A JSON object that remembers which of its values were asked for."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = {name: _watched(value) for name, value in content.items()}
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._content[name]

    def __iter__(self) -> Iterator[str]:
        self._read.update(self._content)
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __contains__(self, name: object) -> bool:
        return name in self._content

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def kept(self) -> dict[str, Any]:
        """Only what was read."""
        return {name: _cut(value) for name, value in self._content.items() if name in self._read}


def _watched(content: Any) -> Any:
    if isinstance(content, dict):
        return Read(content)
    return [_watched(value) for value in content] if isinstance(content, list) else content


def _cut(content: Any) -> Any:
    if isinstance(content, Read):
        return content.kept()
    return [_cut(value) for value in content] if isinstance(content, list) else content


def cut(name: str, content: dict[str, Any]) -> dict[str, Any]:
    """A document without what its table does not read."""
    watched = Read(content)
    PRINTED[name](watched)
    return watched.kept()
