"""vLLM 0.33.0, which loads no placement file: a plug-in package with the plan, or the file of an open pull request.

Source: the wheel (`vllm/distributed/eplb`, `vllm/plugins`) and the pull requests
https://github.com/vllm-project/vllm/pull/41141 (JSON lines) and /49572 (JSON list). Rows are MoE layers in order; a
draft model's layers are not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports.checks import DECLARED, UNKNOWN_KEY, Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.reading import (
    count,
    parse_json,
    read_text,
    require_list,
    require_mapping,
    require_rows,
)
from easybalance_sim.plan.lint import ERROR, WARNING, Finding

TITLE = "vLLM 0.33.0"
SUFFIXES = ("", ".jsonl", ".json")
PACKAGE, PLACEMENT = "ebsim_vllm_plan", "placement.json"
RECORD, VERSION = "eplb_initial_mapping", 1
_RECORD_KEYS = ("record_type", "version", "num_redundant_experts", "num_slots", "initial_global_assignments")


RULES = Rules(
    engine=TITLE,
    layers=rule.MOE,
    source="vllm 0.33.0: distributed/eplb (maps run on a CPU); declared numbers: text and tests of PR #41141",
    effects={
        rule.UNKNOWN_KEY: Effect(level=WARNING, does="was not run with it"),
        rule.DECLARED: Effect(level=ERROR, does="was not run with it (PR #41141)"),
        rule.REDUNDANT: Effect(level=ERROR, does="stops with a ValueError (PR #41141)"),
        rule.NOT_INTEGER: Effect(level=ERROR, does="makes an int64 tensor of the rows and stops or cuts it off"),
        rule.RAGGED: Effect(level=ERROR, does="makes one tensor of the rows and stops"),
        rule.NEGATIVE: Effect(level=ERROR, does="accepts it and leaves the slot unused"),
        rule.RANGE: Effect(level=ERROR, does="stops with a RuntimeError"),
        rule.COVERAGE: Effect(level=ERROR, does="accepts it with 0 replicas"),
        rule.DIVISIBILITY: Effect(level=ERROR, does="stops with an AssertionError"),
        rule.DUPLICATE: Effect(level=WARNING, does="accepts it, the second copy only takes memory"),
        rule.REPLICAS: Effect(level=WARNING, does="accepts it, copies beyond one per rank only take memory"),
        rule.EXPECTED: Effect(level=ERROR, does="stops with an AssertionError"),
        rule.LAYERS: Effect(level=ERROR, does="has no row for a layer and stops"),
        rule.EXTRA_LAYERS: Effect(level=ERROR, does="has no layer for a row and stops"),
    },
)


def read(path: Path) -> EngineFile:
    """Read a plug-in folder, or the file of either pull request. Raises `PlanError` when it holds no placement."""
    if path.is_dir():
        return _read_plugin(path)
    where, text = str(path), read_text(path)
    if path.suffix == ".jsonl":
        return _read_record(path, _mapping_record(text, where))
    content = parse_json(text, where)
    if isinstance(content, dict):
        return _read_record(path, _mapping_record(text, where))
    return _read_list(path, require_list(content, "the file", where))


def check(file: EngineFile, deployment: Deployment) -> Sequence[Finding]:
    """Everything that is wrong with `file`, whether vLLM looks or not."""
    return check_file(RULES, file, deployment)


def _read_plugin(path: Path) -> EngineFile:
    inside = path / PACKAGE / PLACEMENT
    where = str(inside)
    content = require_mapping(parse_json(read_text(inside), where), "the file", where)
    rows = require_rows(content.get("physical_to_logical_map"), "physical_to_logical_map", where)
    return EngineFile(
        path=path,
        layers=tuple(range(len(rows))),
        rows=rows,
        slots=count(content.get("slots")),
        experts=count(content.get("experts")),
    )


def _mapping_record(text: str, where: str) -> dict[Any, Any]:
    """The one record of JSON lines that is a placement."""
    lines = [line for line in text.splitlines() if line.strip()]
    records = [
        require_mapping(parse_json(line, f"{where}: line {n}"), f"line {n}", where) for n, line in _counted(lines)
    ]
    kinds = [record.get("record_type") for record in records]
    if kinds.count(RECORD) != 1:
        raise PlanError(f"has {kinds.count(RECORD)} records of record_type {RECORD!r}, expected one", where=where)
    return records[kinds.index(RECORD)]


def _counted(lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines, start=1))


def _read_record(path: Path, record: dict[Any, Any]) -> EngineFile:
    where = str(path)
    assignments = require_mapping(record.get("initial_global_assignments"), "initial_global_assignments", where)
    if not assignments:
        raise PlanError("initial_global_assignments has no layer", where=where)
    return EngineFile(
        path=path,
        layers=tuple(_layer_number(key, where) for key in assignments),
        rows=tuple(tuple(require_list(row, f"layer {key}", where)) for key, row in assignments.items()),
        slots=count(record.get("num_slots")),
        redundant=count(record.get("num_redundant_experts")),
        findings=tuple(_record_findings(record)),
    )


def _layer_number(key: Any, where: str) -> int:
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10:
        return int(key)
    raise PlanError(f"initial_global_assignments has the key {key!r}, expected a layer number", where=where)


def _record_findings(record: dict[Any, Any]) -> list[Finding]:
    findings = [
        Finding(level=WARNING, message=f"unknown key {key!r}", rule=UNKNOWN_KEY)
        for key in record
        if key not in _RECORD_KEYS
    ]
    if record.get("version") != VERSION:
        findings.append(Finding(level=ERROR, message=f"version is {record.get('version')!r}, expected {VERSION}"))
    for key in ("num_redundant_experts", "num_slots"):
        if count(record.get(key)) is None:
            message = f"{key} is {record.get(key)!r}, expected a whole number"
            findings.append(Finding(level=ERROR, message=message, rule=DECLARED))
    return findings


def _read_list(path: Path, content: Any) -> EngineFile:
    if content and not any(isinstance(row, list) for row in content):
        message = "one row: vLLM places every MoE layer by it"
        finding = Finding(level=WARNING, message=message)
        return EngineFile(path=path, layers=(0,), rows=(tuple(content),), findings=(finding,))
    rows = require_rows(content, "the file", str(path))
    return EngineFile(path=path, layers=tuple(range(len(rows))), rows=rows)
