"""SGLang 0.5.23: `--init-expert-location FILE`, a slot → expert map for every layer of the model.

Source: `sglang/srt/eplb/expert_location.py` of the wheel. The loader takes the single key `physical_to_logical_map` as
keyword arguments (any other key is a TypeError), checks neither the number of layers nor that of slots, and lets -1
stand for the last expert.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim.errors import PlanError
from easybalance_sim.exports import Exported
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports.checks import UNKNOWN_KEY, Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.placement import Limits, Placement, hidden_rows, placement
from easybalance_sim.exports.reading import parse_json, read_text, require_mapping, require_rows, shown
from easybalance_sim.exports.record import record_of
from easybalance_sim.exports.sidecar import replacing_with_sidecar, sidecar_of
from easybalance_sim.exports.writing import require_output, require_schema
from easybalance_sim.plan.lint import ERROR, WARNING, Finding
from easybalance_sim.plan.planfile import PlanDocument
from easybalance_sim.trace.torch_files import read_pt, require_torch

TITLE = "SGLang 0.5.23"
SUFFIXES = (".json", ".pt")
SCHEMAS = ()
KEY = "physical_to_logical_map"
_LIMITS = Limits(engine="SGLang")


RULES = Rules(
    engine=TITLE,
    layers=rule.HIDDEN,
    suffixes=SUFFIXES,
    source="sglang 0.5.23: srt/eplb/expert_location.py, every row but divisibility run on a CPU",
    effects={
        rule.SUFFIX: Effect(level=ERROR, does="takes any other name for JSON text and stops"),
        rule.UNKNOWN_KEY: Effect(level=ERROR, does="stops with a TypeError"),
        rule.NOT_INTEGER: Effect(level=ERROR, does="stops with a TypeError"),
        rule.RAGGED: Effect(level=ERROR, does="stops with a ValueError"),
        rule.NEGATIVE: Effect(level=ERROR, does="accepts it and counts back from the last expert"),
        rule.RANGE: Effect(level=ERROR, does="stops with an IndexError"),
        rule.COVERAGE: Effect(
            level=ERROR, does="stops with a ZeroDivisionError under static dispatch and accepts it under dynamic"
        ),
        rule.DIVISIBILITY: Effect(level=ERROR, does="stops with an AssertionError"),
        rule.DUPLICATE: Effect(
            level=ERROR, does="accepts it, fills the first copy only, and other ranks send tokens to the empty one"
        ),
        rule.REPLICAS: Effect(level=ERROR, does="accepts it and fills one copy on each rank"),
        rule.EXPECTED: Effect(level=ERROR, does="accepts the file and fails later, when the weights are loaded"),
        rule.LAYERS: Effect(
            level=ERROR, does="accepts the file, loads later layers in plain order and fails when it dispatches"
        ),
        rule.EXTRA_LAYERS: Effect(level=WARNING, does="ignores the rows beyond"),
    },
)


def write(document: PlanDocument, deployment: Deployment, output: Path, schema: str) -> Exported:
    """Write `.json` or `.pt`: a row for each layer of the model, dense ones included, and no other key.

    Raises `PlanError` for a plan that SGLang cannot hold or a model whose number of layers is not known, `UsageError`
    where `output` cannot be written or PyTorch is missing.
    """
    require_schema(schema, SCHEMAS)
    require_output(output, SUFFIXES)
    placed = placement(document, deployment, _LIMITS)
    rows = hidden_rows(placed, deployment, "SGLang")
    encoded = _torch_bytes(rows, output) if output.suffix == ".pt" else json.dumps({KEY: rows}).encode()
    with replacing_with_sidecar(output, record_of(document, deployment, "sglang")) as temporary:
        temporary.write_bytes(encoded)
    return Exported(
        files=(output, sidecar_of(output)), launch=_launch(document, placed, output), notes=_notes(document, placed)
    )


def check(file: EngineFile, deployment: Deployment) -> Sequence[Finding]:
    """Everything that is wrong with `file`, whether SGLang looks or not."""
    return check_file(RULES, file, deployment)


def _torch_bytes(rows: list[list[int]], output: Path) -> bytes:
    torch = require_torch(output)
    # Written to memory first: the archive inside a file is named after the file, a temporary one here.
    buffer = io.BytesIO()
    torch.save({KEY: torch.tensor(rows, dtype=torch.int64)}, buffer)
    return buffer.getvalue()


def _launch(document: PlanDocument, placed: Placement, output: Path) -> tuple[str, ...]:
    choice = "dynamic" if document.dispatch == "sglang-dynamic" else "static"
    return (
        f"--tp-size {placed.ranks} --ep-size {placed.ranks} --moe-a2a-backend deepep",
        f"--init-expert-location {shlex.quote(str(output))} --ep-num-redundant-experts {placed.redundant}",
        f"--ep-dispatch-algorithm {choice}",
    )


def _notes(document: PlanDocument, placed: Placement) -> tuple[str, ...]:
    notes = [
        *placed.notes,
        "any a2a backend will do; with --moe-a2a-backend none SGLang wants --ep-dispatch-algorithm dynamic",
    ]
    if document.dispatch not in ("sglang-static", "sglang-dynamic"):
        notes.append(f"the plan was judged under --dispatch {document.dispatch}, which is none of SGLang's rules")
    if len(set(document.topology.node_of_rank)) > 1:
        notes.append("to SGLang ranks are near that share one of its --nnodes machines")
    if placed.mtp_rows:
        notes.append(f"MTP layer {next(iter(placed.mtp_rows))} is left out: SGLang does not place draft models")
    return tuple(notes)


def read(path: Path) -> EngineFile:
    """Read a `.json` or `.pt` file. Raises `PlanError` when it holds no placement."""
    where = str(path)
    content = require_mapping(_decoded(path), "the file", where)
    if KEY not in content:
        raise PlanError(_no_map(content), where=where)
    rows = require_rows(_plain(content[KEY]), KEY, where)
    return EngineFile(path=path, layers=tuple(range(len(rows))), rows=rows, findings=tuple(_extra_keys(content)))


def _decoded(path: Path) -> Any:
    if path.suffix == ".pt":
        return read_pt(path)
    return parse_json(read_text(path), str(path))


def _no_map(content: dict[Any, Any]) -> str:
    if "logical_count" in content:
        return f"holds recorded load (logical_count), no {KEY}: SGLang makes its own plan from it"
    return f"has no {KEY}"


def _plain(value: Any) -> Any:
    """An array as nested lists, anything else as it is."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _extra_keys(content: dict[Any, Any]) -> list[Finding]:
    return [
        Finding(level=ERROR, message=f"key {shown(key)} beside {KEY}: {TITLE} stops with a TypeError", rule=UNKNOWN_KEY)
        for key in content
        if key != KEY
    ]
