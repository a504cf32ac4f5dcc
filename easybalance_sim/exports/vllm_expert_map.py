"""vLLM's pull request #53022: a static expert map of DeepSeek V4, in force from the first step.

Source: https://github.com/vllm-project/vllm/pull/53022, `vllm/models/deepseek_v4/expert_map.py` and
`vllm/config/parallel.py` at 2a2112a7. A JSON list of rows, slot → expert: one for each layer of the model and then one
for each draft layer, or a single one for all. Without redundant slots the router's weights are put in the map's order,
so each group of slots must hold the experts of one group.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from easybalance_sim.errors import PlanError
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports.checks import UNCHECKED, Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.placement import Placement, Row, hidden_rows, judged_under
from easybalance_sim.plan.lint import ERROR, WARNING, Finding
from easybalance_sim.plan.planfile import PlanDocument

SCHEMA, MODEL_TYPE, ONE_ROW = "pr53022", "deepseek_v4", "one-row"
_REFUSES = Effect(level=ERROR, does="stops with a ValueError")

RULES = Rules(
    engine="vLLM with PR #53022",
    layers=rule.HIDDEN,
    one_row=True,
    drafts=True,
    source="vLLM PR #53022 at 2a2112a7: load_static_expert_map (its rules run on a CPU), EPLBConfig and ParallelConfig",
    effects={
        rule.NOT_INTEGER: _REFUSES,
        rule.RAGGED: _REFUSES,
        rule.NEGATIVE: _REFUSES,
        rule.RANGE: _REFUSES,
        rule.COVERAGE: _REFUSES,
        rule.GROUPS: _REFUSES,
        rule.EXPECTED: _REFUSES,
        rule.MODEL: Effect(level=ERROR, does="has such a map for DeepSeek V4 only"),
        rule.DIVISIBILITY: Effect(level=ERROR, does="accepts the file and cannot deal the slots to its ranks"),
        rule.DUPLICATE: Effect(level=WARNING, does="accepts it"),
        rule.REPLICAS: Effect(level=WARNING, does="accepts it"),
        rule.REDUNDANT_LIMIT: Effect(level=ERROR, does="refuses the number"),
        rule.LAYERS: Effect(level=ERROR, does="stops with a ValueError: it wants one for each layer, draft layers too"),
        rule.EXTRA_LAYERS: _REFUSES,
    },
)


def map_rows(placed: Placement, deployment: Deployment) -> Mapping[int, Row]:
    """[hidden and draft layers][P] the file's rows by layer id, the filler where the plan does not place a layer.

    Raises `PlanError` for another model than DeepSeek V4, one whose number of layers is not known, and a plan that
    mixes the model's expert groups without redundant slots.
    """
    if deployment.model and deployment.model_type != MODEL_TYPE:
        other = (
            "is another model" if deployment.model_type else "may be another model: its config.json names no model_type"
        )
        raise PlanError(
            f"vLLM's pull request #53022 is for DeepSeek V4 only, {deployment.model} {other}",
            fix="choose another --schema, or correct --model",
        )
    rows = dict(enumerate(hidden_rows(placed, deployment, "vLLM")))
    among = sorted(set(rows).intersection(deployment.mtp_layers))
    if among:
        raise PlanError(f"layer {among[0]} is the model's draft (MTP) layer", fix="correct --hidden-layers")
    rows |= {layer: list(placed.mtp_rows.get(layer, placed.filler)) for layer in sorted(deployment.mtp_layers)}
    for layer, row in rows.items():
        mixed = None if placed.redundant else _mixed(row, deployment.groups)
        if mixed is not None:
            raise PlanError(
                f"{mixed[1]}: without redundant slots vLLM refuses a file that mixes expert groups",
                where=f"layer {layer}, slot {mixed[0]}",
                fix="plan with redundant slots (--slots-per-rank)",
            )
    return rows


def _mixed(row: Sequence[int], groups: int | None) -> tuple[int, str] | None:
    """The first slot with an expert of another group than its group of slots begins with, and what is wrong there.

    row: [E] a permutation. None where nothing is, or the groups are not known or do not divide the experts.
    """
    if not groups or len(row) % groups:
        return None
    size = len(row) // groups
    for slot, expert in enumerate(row):
        start = slot - slot % size
        if expert // size != row[start] // size:
            last = start + size - 1
            return slot, f"slots {start} to {last} hold experts of groups {row[start] // size} and {expert // size}"
    return None


def launch(placed: Placement, output: Path) -> tuple[str, ...]:
    """The flags to start vLLM with; its balancer is only needed where there are redundant slots."""
    config = {"num_redundant_experts": placed.redundant, "expert_map_path": str(output)}
    return (
        f"--enable-expert-parallel{' --enable-eplb' if placed.redundant else ''}",
        f"--eplb-config {shlex.quote(json.dumps(config, ensure_ascii=False))}",
    )


def notes(document: PlanDocument, placed: Placement, deployment: Deployment, layers: Iterable[int]) -> tuple[str, ...]:
    """What a user must know before loading the file of `layers`, with what could not be checked."""
    said = [
        *placed.notes,
        f"tensor × data parallel size must be {placed.ranks}",
        "vLLM 0.33.0 does not read this file: it needs the pull request #53022, which is for DeepSeek V4 only",
        "the placement is fixed: in force from the first step, never rearranged",
        "expert_placement_strategy must stay linear",
    ]
    if not deployment.model:
        said.append(
            "the model is not known: that it is DeepSeek V4 was not checked, and its draft (MTP) layers, of which each "
            "needs a row, have none here (--model)"
        )
    if deployment.groups is None and not placed.redundant:
        said.append(
            "the expert groups of the model are not known: without redundant slots vLLM refuses a file that mixes them"
        )
    made_up = [layer for layer in layers if layer not in placed.rows and layer not in placed.mtp_rows]
    if made_up:
        more = f" and {len(made_up) - 1} more are" if len(made_up) > 1 else " is"
        said.append(f"layer {made_up[0]}{more} not in the plan: slot number modulo experts stands there")
    return (*said, *judged_under(document, "vllm"))


def is_other_model(deployment: Deployment) -> bool:
    """Whether the model is known to be none that the pull request is for."""
    return deployment.model_type not in ("", MODEL_TYPE)


def check(file: EngineFile, deployment: Deployment) -> list[Finding]:
    """Everything that is wrong with `file`, whether vLLM looks or not."""
    own = [finding for finding in file.findings if finding.rule != ONE_ROW]
    if len(file.rows) == 1 and deployment.layers_with_drafts != 1:
        own.append(Finding(level=WARNING, message="one row: vLLM places every layer by it", rule=ONE_ROW))
        deployment = replace(deployment, hidden_layers=1, mtp_layers=())
    findings = check_file(RULES, replace(file, findings=tuple(own)), deployment)
    broken = {finding.layer for finding in findings if finding.level == ERROR}
    rows = [] if deployment.redundant else zip(file.layers, file.rows, strict=True)
    permutations = {layer: row for layer, row in rows if layer not in broken and len(row) == len(set(row))}
    return [*_model(deployment), *findings, *_groups(permutations, deployment.groups)]


def _model(deployment: Deployment) -> list[Finding]:
    """What is wrong with the model, or not known of it."""
    if is_other_model(deployment):
        return RULES.found(rule.MODEL, f"{deployment.model} is another model")
    if deployment.model_type:
        return []
    whose = f"the model_type of {deployment.model}" if deployment.model else "the model"
    message = f"{whose} is not known: that it is DeepSeek V4 is not checked (--model)"
    return [Finding(level=WARNING, message=message, rule=UNCHECKED)]


def _groups(permutations: Mapping[int, Row], groups: int | None) -> list[Finding]:
    """What is wrong with the order of a model's expert groups in rows without redundant slots, by layer."""
    if groups is None and permutations:
        message = (
            "the expert groups of the model are not known: that no group of slots mixes them is not checked (--model)"
        )
        return [Finding(level=WARNING, message=message, rule=UNCHECKED)]
    findings = []
    for layer, row in permutations.items():
        mixed = _mixed(row, groups)
        if groups and len(row) % groups:
            findings += RULES.found(rule.GROUPS, f"{len(row)} experts do not form {groups} groups", layer=layer)
        elif mixed is not None:
            findings += RULES.found(rule.GROUPS, mixed[1], layer=layer, slot=mixed[0])
    return findings
