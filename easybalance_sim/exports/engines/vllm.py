"""vLLM 0.33.0, which loads no placement file: a plug-in package with the plan, or the file of an open pull request.

Source: the wheel (`vllm/distributed/eplb`, `vllm/plugins`) and the pull requests
https://github.com/vllm-project/vllm/pull/41141 (JSON lines) and /49572 (JSON list), whose rows are MoE layers in
order, a draft model's not among them, and /53022 (`vllm_expert_map`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports import Exported, vllm_expert_map
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports.checks import DECLARED, UNCHECKED, UNKNOWN_KEY, Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.placement import Limits, Placement, Row, judged_under, placement
from easybalance_sim.exports.reading import (
    count,
    parse_json,
    read_text,
    require_layers,
    require_list,
    require_mapping,
    require_rows,
    shown,
)
from easybalance_sim.exports.record import record_of
from easybalance_sim.exports.sidecar import replacing_with_sidecar, sidecar_of
from easybalance_sim.exports.vllm_expert_map import ONE_ROW
from easybalance_sim.exports.vllm_plugin import fill_plugin, read_plugin, require_plugin_place
from easybalance_sim.exports.writing import require_output, require_schema
from easybalance_sim.plan.lint import ERROR, WARNING, Finding
from easybalance_sim.plan.planfile import PlanDocument

TITLE = "vLLM 0.33.0"
SUFFIXES = ("", ".jsonl", ".json")
PLUGIN, JSON_LINES, JSON_LIST, EXPERT_MAP = "plugin", "pr41141", "pr49572", vllm_expert_map.SCHEMA
SCHEMAS = (PLUGIN, JSON_LINES, JSON_LIST, EXPERT_MAP)
RECORD, VERSION, ROWS = "eplb_initial_mapping", 1, "initial_global_assignments"
_RECORD_KEYS = ("record_type", "version", "num_redundant_experts", "num_slots", ROWS)
_LIMITS = Limits(engine="vLLM", redundant=rule.MOST_REDUNDANT, ranks=2)
_NOT_WRITTEN = {
    "pr14544": "it was closed, and whether its map is as wide as the experts or the slots is not settled",
    "das": "the keys of vllm-plugin-das's version 2 file are in none of its texts",
}

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
        rule.DUPLICATE: Effect(level=WARNING, does="accepts it, its own plans have such rows"),
        rule.REPLICAS: Effect(level=WARNING, does="accepts it, its own plans have such rows"),
        rule.EXPECTED: Effect(level=ERROR, does="stops with an AssertionError"),
        rule.REDUNDANT_LIMIT: Effect(level=ERROR, does="refuses the number"),
        rule.LAYERS: Effect(level=ERROR, does="has no row for a layer and stops"),
        rule.EXTRA_LAYERS: Effect(level=ERROR, does="has no layer for a row and stops"),
    },
)


def write(document: PlanDocument, deployment: Deployment, output: Path, schema: str) -> Exported:
    """Write a plug-in folder (`plugin`), or the file that an open pull request reads (the other schemas).

    Raises `PlanError` for a plan that vLLM cannot hold, `UsageError` for a schema that is not known well enough or an
    `output` that cannot be written.
    """
    if schema in _NOT_WRITTEN:
        raise UsageError(f"{schema}: {_NOT_WRITTEN[schema]}", where="--schema", fix=f"choose {', '.join(SCHEMAS)}")
    chosen = require_schema(schema, SCHEMAS)
    placed = placement(document, deployment, _LIMITS)
    if chosen == PLUGIN:
        require_plugin_place(output)
    else:
        require_output(output, (suffix_for(chosen),))
    rows = vllm_expert_map.map_rows(placed, deployment) if chosen == EXPERT_MAP else placed.rows
    record = record_of(document, deployment, "vllm", chosen)
    with replacing_with_sidecar(output, record, folder=chosen == PLUGIN) as temporary:
        if chosen == PLUGIN:
            fill_plugin(temporary, placed, document.fingerprint())
        else:
            text = _record(placed) if chosen == JSON_LINES else json.dumps(_listed(rows))
            temporary.write_text(text, encoding="utf-8")
    files = (output, sidecar_of(output))
    if chosen == EXPERT_MAP:
        notes = vllm_expert_map.notes(document, placed, deployment, rows)
        return Exported(files=files, launch=vllm_expert_map.launch(placed, output), notes=notes)
    return Exported(files=files, launch=_launch(chosen, placed, output), notes=_notes(chosen, document, placed))


def suffix_for(schema: str) -> str:
    """How a file in `schema` ends; the plug-in folder, which is the default, has no ending."""
    return {JSON_LINES: ".jsonl", JSON_LIST: ".json", EXPERT_MAP: ".json"}.get(schema, "")


def _listed(rows: Mapping[int, Row]) -> list[list[int]]:
    return [list(row) for row in rows.values()]


def _record(placed: Placement) -> str:
    record = {
        "record_type": RECORD,
        "version": VERSION,
        "num_redundant_experts": placed.redundant,
        "num_slots": placed.slots,
        ROWS: {str(place): row for place, row in enumerate(_listed(placed.rows))},
    }
    return json.dumps(record) + "\n"


def _launch(schema: str, placed: Placement, output: Path) -> tuple[str, ...]:
    config: dict[str, Any] = {"num_redundant_experts": placed.redundant}
    if schema == JSON_LINES:
        config |= {"initial_mapping_path": str(output), "disable_online_rebalancing": True}
    if schema == JSON_LIST:
        config |= {"initial_expert_map_path": str(output)}
    flags = (
        "--enable-expert-parallel --enable-eplb",
        f"--eplb-config {shlex.quote(json.dumps(config, ensure_ascii=False))}",
    )
    if schema == PLUGIN:
        folder = str(output) if output.is_absolute() else f"./{output}"
        return (f"pip install {shlex.quote(folder)}", *flags)
    return flags


def _notes(schema: str, document: PlanDocument, placed: Placement) -> tuple[str, ...]:
    notes = [*placed.notes, f"tensor × data parallel size must be {placed.ranks}"]
    if schema == PLUGIN:
        notes.append(
            "install it on every machine of the group; where VLLM_PLUGINS is set, it must name ebsim_plan. The plan is "
            "in force after the first rearrangement, step_interval / 4 steps after the start"
        )
    else:
        notes.append(f"vLLM 0.33.0 does not read this file: it needs the pull request #{schema.removeprefix('pr')}")
    if schema == JSON_LIST:
        notes.append("vLLM goes on to rearrange by its own policy: raise step_interval to keep the plan")
    notes += judged_under(document, "vllm")
    if placed.mtp_rows:
        notes.append(f"MTP layer {next(iter(placed.mtp_rows))} is left out: vLLM places draft models by itself")
    return tuple(notes)


def read(path: Path) -> EngineFile:
    """Read a plug-in folder, or the file of any of the pull requests. Raises `PlanError` when it holds no placement."""
    if path.is_dir():
        return replace(read_plugin(path), schema=PLUGIN)
    where, text = str(path), read_text(path)
    if path.suffix == ".jsonl":
        return _read_record(path, _mapping_record(text, where))
    content = parse_json(text, where)
    if isinstance(content, dict):
        if content.get("record_type") != RECORD:
            what = f"a JSON object that is no {RECORD!r} record (#41141): #49572 and #53022 read a list of rows"
            raise PlanError(what, where=where)
        return _read_record(path, content)
    return _read_list(path, require_list(content, "the file", where))


def check(file: EngineFile, deployment: Deployment) -> Sequence[Finding]:
    """Everything that is wrong with `file`, which is in `file.schema`, whether vLLM looks or not."""
    if file.schema == EXPERT_MAP:
        return vllm_expert_map.check(file, deployment)
    found = _checked(file, deployment)
    if file.schema != JSON_LIST or deployment.schema or _list_for(file, deployment):
        return found
    return [*_doubt(found, vllm_expert_map.check(file, deployment)), *found]


def schemas_of(file: EngineFile, deployment: Deployment) -> Sequence[str]:
    """Which schemas the file can be in, the likeliest first: two pull requests read a list of rows."""
    if file.schema not in (JSON_LIST, EXPERT_MAP):
        return (file.schema,)
    return (EXPERT_MAP, JSON_LIST) if _list_for(file, deployment) == EXPERT_MAP else (JSON_LIST, EXPERT_MAP)


def rules_for(schema: str) -> Rules:
    """The rules of vLLM, or of the pull request that has its own."""
    return vllm_expert_map.RULES if schema == EXPERT_MAP else RULES


def _list_for(file: EngineFile, deployment: Deployment) -> str:
    """The schema that a JSON list is in by the model and the number of its rows, "" where neither tells."""
    if vllm_expert_map.is_other_model(deployment):
        return JSON_LIST
    every, moe = deployment.layers_with_drafts, deployment.moe_layers
    if every is None or moe is None or every == len(moe) or len(file.rows) == 1:
        return ""
    return EXPERT_MAP if len(file.rows) == every else JSON_LIST


def _checked(file: EngineFile, deployment: Deployment) -> list[Finding]:
    if any(finding.rule == ONE_ROW for finding in file.findings):
        deployment = replace(deployment, moe_layers=(0,), mtp_layers=())
    return check_file(RULES, file, deployment)


def _doubt(found: Sequence[Finding], as_map: Sequence[Finding]) -> list[Finding]:
    """What to say where it makes a difference which pull request a list is for, and nothing tells."""
    wrong, wrong_as_map = (any(one.level == ERROR for one in each) for each in (found, as_map))
    if wrong == wrong_as_map:
        return []
    other = "it has errors" if wrong_as_map else "nothing is wrong with it"
    message = f"taken for a list of the pull request #49572: as one of #53022 {other} (--schema)"
    return [Finding(level=WARNING, message=message, rule=UNCHECKED)]


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
    assignments = require_mapping(record.get(ROWS), ROWS, where)
    if not assignments:
        raise PlanError(f"{ROWS} has no layer", where=where)
    layers = require_layers(assignments, ROWS, where)
    rows = zip(layers, assignments.values(), strict=True)
    slots, redundant = count(record.get("num_slots")), count(record.get("num_redundant_experts"))
    said = None if slots is None or redundant is None else slots - redundant
    return EngineFile(
        path=path,
        layers=layers,
        rows=tuple(tuple(require_list(row, f"layer {layer}", where)) for layer, row in rows),
        slots=slots,
        experts=said if said and said > 0 else None,
        redundant=redundant,
        schema=JSON_LINES,
        findings=tuple(_record_findings(record)),
    )


def _record_findings(record: dict[Any, Any]) -> list[Finding]:
    findings = [
        Finding(level=WARNING, message=f"unknown key {shown(key)}", rule=UNKNOWN_KEY)
        for key in record
        if key not in _RECORD_KEYS
    ]
    if record.get("version") != VERSION:
        findings.append(Finding(level=ERROR, message=f"version is {shown(record.get('version'))}, expected {VERSION}"))
    for key in ("num_redundant_experts", "num_slots"):
        if count(record.get(key)) is None:
            message = f"{key} is {shown(record.get(key))}, expected a whole number"
            findings.append(Finding(level=ERROR, message=message, rule=DECLARED))
    return findings


def _read_list(path: Path, content: Any) -> EngineFile:
    if content and not any(isinstance(row, list) for row in content):
        message = "one row: vLLM places every MoE layer by it"
        finding = Finding(level=WARNING, message=message, rule=ONE_ROW)
        return EngineFile(path=path, layers=(0,), rows=(tuple(content),), schema=JSON_LIST, findings=(finding,))
    rows = require_rows(content, "the file", str(path))
    return EngineFile(path=path, layers=tuple(range(len(rows))), rows=rows, schema=JSON_LIST)
