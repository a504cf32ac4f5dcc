"""vllm-ascend (model runner v1): `expert_map.json`, for each MoE layer the experts of each device.

Source: `vllm_ascend/eplb/core/eplb_utils.py` at 182b75ea84. Only the order of the lists counts: `layer_id`, `device_id`
and `device_count` are not read. An expert that is twice on a device, or nowhere, silently shifts the slot table.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError
from easybalance_sim.exports import Exported
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports.checks import DECLARED, DEVICE_ORDER, Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.placement import Limits, Placement, Row, judged_under, placement
from easybalance_sim.exports.reading import parse_json, read_text, require_list, require_mapping, shown
from easybalance_sim.exports.record import record_of
from easybalance_sim.exports.sidecar import replacing_with_sidecar, sidecar_of
from easybalance_sim.exports.writing import require_output, require_schema
from easybalance_sim.plan.lint import ERROR, WARNING, Finding
from easybalance_sim.plan.planfile import PlanDocument

TITLE = "vllm-ascend 182b75ea84, model runner v1"
SUFFIXES = (".json",)
SCHEMAS = ()
_LIMITS = Limits(engine="vllm-ascend")


def write(document: PlanDocument, deployment: Deployment, output: Path, schema: str) -> Exported:
    """Write the expert map: the MoE layers in order, each with the experts of its devices in slot order.

    Raises `PlanError` for a plan that vllm-ascend cannot hold, `UsageError` where `output` cannot be written.
    """
    require_schema(schema, SCHEMAS)
    require_output(output, SUFFIXES)
    placed = placement(document, deployment, _LIMITS)
    layers = [_layer(place, row, placed) for place, row in enumerate(placed.rows.values())]
    content = {"moe_layer_count": len(layers), "layer_list": layers}
    with replacing_with_sidecar(output, record_of(document, deployment, "vllm-ascend")) as temporary:
        temporary.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return Exported(files=(output, sidecar_of(output)), launch=_launch(placed, output), notes=_notes(document, placed))


def _layer(place: int, row: Row, placed: Placement) -> dict[str, Any]:
    each = placed.slots_per_rank
    devices = [
        {"device_id": rank, "device_expert": list(row[rank * each : (rank + 1) * each])} for rank in range(placed.ranks)
    ]
    return {"layer_id": place, "device_count": placed.ranks, "device_list": devices}


def _launch(placed: Placement, output: Path) -> tuple[str, ...]:
    config = {"eplb_config": {"expert_map_path": str(output), "num_redundant_experts": placed.redundant}}
    return (
        "--enable-expert-parallel",
        f"--additional-config {shlex.quote(json.dumps(config, ensure_ascii=False))}",
    )


def _notes(document: PlanDocument, placed: Placement) -> tuple[str, ...]:
    notes = [
        *placed.notes,
        f"tensor × data parallel size must be {placed.ranks}",
        "model runner v1 only (v2 refuses expert_map_path); at 182b75ea84 checkpoints are loaded into the order that "
        "vLLM starts with, so compare answers with and without the map before you serve with it",
    ]
    notes += judged_under(document, "ascend-v1")
    if placed.mtp_rows:
        notes.append(f"MTP layer {next(iter(placed.mtp_rows))} is left out: the map numbers the main model's layers")
    return tuple(notes)


RULES = Rules(
    engine="vllm-ascend 182b75e",
    layers=rule.MOE,
    suffixes=SUFFIXES,
    source="vllm-ascend 182b75ea84: eplb/core/eplb_utils.py run on a CPU; check_expert_placement read",
    effects={
        rule.SUFFIX: Effect(level=ERROR, does="stops with a TypeError"),
        rule.DECLARED: Effect(level=ERROR, does="stops with a ValueError (Invalid EPLB Table)"),
        rule.DEVICE_ORDER: Effect(level=WARNING, does="goes by the place"),
        rule.NOT_INTEGER: Effect(level=ERROR, does="was not run with it"),
        rule.RAGGED: Effect(level=ERROR, does="stops with a ValueError"),
        rule.UNEVEN: Effect(level=ERROR, does="stops with a ValueError"),
        rule.NEGATIVE: Effect(level=ERROR, does="accepts it and counts back from the last expert"),
        rule.RANGE: Effect(level=ERROR, does="stops with an IndexError"),
        rule.COVERAGE: Effect(level=ERROR, does="accepts it, its slot table gets too short and ids shift"),
        rule.DIVISIBILITY: Effect(level=ERROR, does="stops with a ValueError"),
        rule.DUPLICATE: Effect(level=ERROR, does="accepts it and gets a wrong slot table"),
        rule.REPLICAS: Effect(level=ERROR, does="accepts it and gets a wrong slot table"),
        rule.DEVICES: Effect(level=ERROR, does="accepts it and drops the devices beyond its ranks"),
        rule.EXPECTED: Effect(level=ERROR, does="stops: EPLB local expert capacity mismatch"),
        rule.LAYERS: Effect(level=ERROR, does="stops with a ValueError (Invalid EPLB Table)"),
        rule.EXTRA_LAYERS: Effect(level=WARNING, does="takes a layer after the last for the MTP layer"),
        rule.MOVED: Effect(level=ERROR, does="rejects the layer while it serves and keeps the old one"),
    },
)


def read(path: Path) -> EngineFile:
    """Read an expert map. Raises `PlanError` when it holds no placement."""
    where = str(path)
    content = require_mapping(parse_json(read_text(path), where), "the file", where)
    layers = [
        require_mapping(layer, f"layer_list[{index}]", where)
        for index, layer in enumerate(require_list(content.get("layer_list"), "layer_list", where))
    ]
    if not layers:
        raise PlanError("layer_list has no layer", where=where)
    devices = [_devices(index, layer, where) for index, layer in enumerate(layers)]
    return EngineFile(
        path=path,
        layers=tuple(range(len(layers))),
        rows=tuple(tuple(expert for device in layer for expert in device) for layer in devices),
        ranks_of_rows=tuple(tuple(len(device) for device in layer) for layer in devices),
        findings=tuple(_findings(content, layers, devices)),
    )


def check(file: EngineFile, deployment: Deployment) -> Sequence[Finding]:
    """Everything that is wrong with `file`, whether vllm-ascend looks or not."""
    return check_file(RULES, file, deployment)


def _devices(index: int, layer: dict[Any, Any], where: str) -> list[Sequence[Any]]:
    """The expert list of each device of one layer."""
    what = f"layer_list[{index}].device_list"
    listed = require_list(layer.get("device_list"), what, where)
    return [
        require_list(
            require_mapping(device, f"{what}[{rank}]", where).get("device_expert"),
            f"{what}[{rank}].device_expert",
            where,
        )
        for rank, device in enumerate(listed)
    ]


def _findings(
    content: dict[Any, Any], layers: Sequence[dict[Any, Any]], devices: Sequence[Sequence[Any]]
) -> Iterator[Finding]:
    declared = content.get("moe_layer_count")
    if declared != len(layers):
        yield Finding(
            level=ERROR,
            message=f"moe_layer_count is {shown(declared)}, layer_list has {len(layers)} layers",
            rule=DECLARED,
        )
    for index, (layer, listed) in enumerate(zip(layers, devices, strict=True)):
        ids = [device.get("device_id") for device in layer["device_list"]]
        if layer.get("layer_id") != index:
            message = f"layer_id is {shown(layer.get('layer_id'))} at place {index}: vllm-ascend goes by the place"
            yield Finding(level=WARNING, message=message, layer=index, rule=DEVICE_ORDER)
        if ids != list(range(len(ids))):
            message = "device_id is not 0, 1, 2, …: vllm-ascend goes by the place"
            yield Finding(level=WARNING, message=message, layer=index, rule=DEVICE_ORDER)
        if layer.get("device_count") != len(listed):
            message = f"device_count is {shown(layer.get('device_count'))}, device_list has {len(listed)} devices"
            yield Finding(level=WARNING, message=message, layer=index, rule=DEVICE_ORDER)
