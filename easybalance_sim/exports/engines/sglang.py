"""SGLang 0.5.23: `--init-expert-location FILE`, a slot → expert map for every layer of the model.

Source: `sglang/srt/eplb/expert_location.py` of the wheel. The loader takes the single key `physical_to_logical_map` as
keyword arguments (any other key is a TypeError), checks neither the number of layers nor that of slots, and lets -1
stand for the last expert.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError
from easybalance_sim.exports.checks import UNKNOWN_KEY
from easybalance_sim.exports.engine_file import EngineFile
from easybalance_sim.exports.reading import parse_json, read_text, read_torch, require_mapping, require_rows
from easybalance_sim.plan.lint import ERROR, Finding

TITLE = "SGLang 0.5.23"
SUFFIXES = (".json", ".pt")
KEY = "physical_to_logical_map"


def read(path: Path) -> EngineFile:
    """Read a `.json` or `.pt` file. Raises `PlanError` when it holds no placement."""
    where = str(path)
    content = require_mapping(_decoded(path), "the file", where)
    if KEY not in content:
        raise PlanError(_no_map(content), where=where)
    rows = require_rows(_plain(content[KEY], where), KEY, where)
    return EngineFile(path=path, layers=tuple(range(len(rows))), rows=rows, findings=tuple(_extra_keys(content)))


def _decoded(path: Path) -> Any:
    if path.suffix == ".pt":
        return read_torch(path)
    return parse_json(read_text(path), str(path))


def _no_map(content: dict[Any, Any]) -> str:
    if "logical_count" in content:
        return f"holds recorded load (logical_count), no {KEY}: SGLang makes its own plan from it"
    return f"has no {KEY}"


def _plain(value: Any, where: str) -> Any:
    """A tensor as nested lists, anything else as it is."""
    if not hasattr(value, "tolist"):
        return value
    try:
        return value.tolist()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise PlanError(f"{KEY} is a tensor that cannot be read: {error}", where=where) from error


def _extra_keys(content: dict[Any, Any]) -> list[Finding]:
    return [
        Finding(level=ERROR, message=f"key {key!r} beside {KEY}: {TITLE} stops with a TypeError", rule=UNKNOWN_KEY)
        for key in content
        if key != KEY
    ]
