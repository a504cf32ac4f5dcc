"""TensorRT-LLM: the MoE load balancer's YAML, `moe_config.load_balancer` of the LLM API options.

Source: `MoeLoadBalancerConfig` and `examples/wide_ep/ep_load_balancer`, commits c85e8726 and 7ce477f3. Keys of
`initial_global_assignments` are absolute layer ids; no other key than the three may stand in the file. A layer that is
missing, an MTP layer included, is a KeyError at start-up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError
from easybalance_sim.exports import Exported
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports.checks import DECLARED, UNKNOWN_KEY, Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.placement import Limits, Placement, judged_under, placement
from easybalance_sim.exports.reading import (
    count,
    parse_yaml,
    read_text,
    require_layers,
    require_list,
    require_mapping,
    shown,
)
from easybalance_sim.exports.record import record_of
from easybalance_sim.exports.sidecar import replacing_with_sidecar, sidecar_of
from easybalance_sim.exports.writing import require_output, require_schema
from easybalance_sim.plan.lint import ERROR, INT16_SLOTS, KERNEL_EXPERTS, WARNING, Finding
from easybalance_sim.plan.planfile import PlanDocument

TITLE = "TensorRT-LLM c85e8726"
SUFFIXES = (".yaml", ".yml")
SCHEMAS = ()
ROWS, SLOTS, UPDATES = "initial_global_assignments", "num_slots", "layer_updates_per_iter"
_LIMITS = Limits(engine="TensorRT-LLM", slots=INT16_SLOTS, experts=KERNEL_EXPERTS, ranks=2)


def write(document: PlanDocument, deployment: Deployment, output: Path, schema: str) -> Exported:
    """Write the YAML: a row for each MoE layer by its absolute id, MTP layers included, and static.

    Raises `PlanError` for a plan that TensorRT-LLM cannot hold, `UsageError` where `output` cannot be written.
    """
    require_schema(schema, SCHEMAS)
    require_output(output, SUFFIXES)
    placed = placement(document, deployment, _LIMITS)
    made_up = [layer for layer in deployment.mtp_layers if layer not in placed.mtp_rows]
    rows = {**placed.rows, **placed.mtp_rows, **dict.fromkeys(made_up, placed.filler)}
    lines = [f"{SLOTS}: {placed.slots}", f"{UPDATES}: 0", f"{ROWS}:"]
    lines += [f"  {layer}: {list(rows[layer])}" for layer in sorted(rows)]
    with replacing_with_sidecar(output, record_of(document, deployment, "tensorrt-llm")) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Exported(
        files=(output, sidecar_of(output)),
        launch=_launch(placed, output),
        notes=_notes(document, placed, deployment, made_up),
    )


def _launch(placed: Placement, output: Path) -> tuple[str, ...]:
    return (
        f"--tp_size {placed.ranks} --ep_size {placed.ranks} --extra_llm_api_options OPTIONS.yaml",
        "# OPTIONS.yaml:",
        "enable_attention_dp: true",
        "moe_config:",
        f"  load_balancer: {json.dumps(str(output), ensure_ascii=False)}",
    )


def _notes(document: PlanDocument, placed: Placement, deployment: Deployment, made_up: list[int]) -> tuple[str, ...]:
    notes = [
        *placed.notes,
        "only MoE backends that balance load use it (moe_config.backend), and only for models that TensorRT-LLM lists "
        "for it: it is ignored otherwise, without a word",
    ]
    if made_up:
        notes.append(f"MTP layer {made_up[0]} is not in the plan: its row is made up (slot number modulo experts)")
    if deployment.moe_layers is None:
        notes.append(
            "an MTP layer without a row stops TensorRT-LLM when MTP decoding is on: a model that is not known gets none"
        )
    notes += judged_under(document, "tensorrt-llm")
    return tuple(notes)


RULES = Rules(
    engine="TensorRT-LLM",
    layers=rule.ABSOLUTE,
    drafts=True,
    source="tensorrt_llm: MoeLoadBalancerConfig.setup and setInitialWeightAssignments, read, not run",
    effects={
        rule.UNKNOWN_KEY: Effect(level=ERROR, does="refuses the file"),
        rule.DECLARED: Effect(level=ERROR, does="stops with a ValueError"),
        rule.NOT_INTEGER: Effect(level=ERROR, does="refuses the file, or reads text and whole floats as numbers"),
        rule.RAGGED: Effect(level=ERROR, does="stops with a ValueError"),
        rule.NEGATIVE: Effect(level=ERROR, does="stops with an AssertionError"),
        rule.RANGE: Effect(level=ERROR, does="stops with an AssertionError"),
        rule.COVERAGE: Effect(level=ERROR, does="stops with an AssertionError"),
        rule.DIVISIBILITY: Effect(level=ERROR, does="stops with a ValueError"),
        rule.DUPLICATE: Effect(level=WARNING, does="accepts it, its own plans have such rows"),
        rule.REPLICAS: Effect(level=WARNING, does="accepts it, its own plans have such rows"),
        rule.EXPECTED: Effect(level=WARNING, does="goes by the file's num_slots"),
        rule.LAYERS: Effect(level=ERROR, does="stops with a KeyError"),
        rule.MTP: Effect(level=WARNING, does="stops with a KeyError when MTP decoding is on"),
        rule.EXTRA_LAYERS: Effect(level=WARNING, does="never looks at it"),
        rule.SLOT_LIMIT: Effect(level=ERROR, does="keeps slot ids in int16"),
        rule.EXPERT_LIMIT: Effect(level=ERROR, does="has no kernel for so many"),
    },
)


def read(path: Path) -> EngineFile:
    """Read a balancer YAML. Raises `PlanError` when it holds no placement."""
    where = str(path)
    content = require_mapping(parse_yaml(read_text(path), where), "the file", where)
    assignments = require_mapping(content.get(ROWS), ROWS, where)
    if not assignments:
        raise PlanError(f"{ROWS} has no layer", where=where)
    layers = require_layers(assignments, ROWS, where)
    rows = tuple(
        tuple(require_list(row, f"layer {layer}", where))
        for layer, row in zip(layers, assignments.values(), strict=True)
    )
    return EngineFile(
        path=path,
        layers=layers,
        rows=rows,
        slots=count(content.get(SLOTS)),
        findings=(*_keys(content), *_layer_keys(assignments)),
    )


def check(file: EngineFile, deployment: Deployment) -> Sequence[Finding]:
    """Everything that is wrong with `file`, whether TensorRT-LLM looks or not."""
    return check_file(RULES, file, deployment)


def _keys(content: dict[Any, Any]) -> list[Finding]:
    findings = [
        Finding(level=ERROR, message=f"unknown key {shown(key)}: TensorRT-LLM refuses the file", rule=UNKNOWN_KEY)
        for key in content
        if key not in (ROWS, SLOTS, UPDATES)
    ]
    if count(content.get(SLOTS)) is None:
        message = f"{SLOTS} is {shown(content.get(SLOTS))}, expected a whole number"
        findings.append(Finding(level=ERROR, message=message, rule=DECLARED))
    updates = content.get(UPDATES, 0)
    if count(updates) is None:
        findings.append(Finding(level=ERROR, message=f"{UPDATES} is {shown(updates)}, expected a whole number"))
    elif updates:
        message = f"{UPDATES} is {updates}: TensorRT-LLM moves experts away from this placement while it serves"
        findings.append(Finding(level=WARNING, message=message))
    return findings


def _layer_keys(assignments: dict[Any, Any]) -> list[Finding]:
    text = [key for key in assignments if isinstance(key, str)]
    if not text:
        return []
    message = f"layer key {shown(text[0])} is text: TensorRT-LLM's own scripts look layers up by number"
    return [Finding(level=WARNING, message=message)]
