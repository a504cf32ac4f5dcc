"""Omni-Infer (Huawei): `placement[device, moe_layer, expert]`, 1 where the device holds a copy, as `.npy` or `.npz`.

The format has no slot order: a device's experts are dealt to its slots by rising id. Facts: the placement patterns of
omni-ai-npu/omni-infer (omni/accelerators/placement/patterns, forks at 0d409dfc and 652b242f). What the engine does
with a broken pattern was not read: its rules are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from easybalance_sim.arrays import AnyArray, BoolArray
from easybalance_sim.errors import PlanError, TraceError
from easybalance_sim.exports import Exported
from easybalance_sim.exports import checks as rule
from easybalance_sim.exports.checks import Effect, Rules, check_file
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.fillers import fillers_of
from easybalance_sim.exports.record import record_of
from easybalance_sim.exports.sidecar import replacing_with_sidecar, sidecar_of
from easybalance_sim.exports.writing import require_output, require_schema
from easybalance_sim.plan.lint import ERROR, WARNING, Finding
from easybalance_sim.plan.planfile import PlanDocument
from easybalance_sim.trace.array_files import read_arrays

TITLE = "Omni-Infer placement patterns"
SUFFIXES = (".npy", ".npz")
SCHEMAS = ()
KEY = "placement"
MOST_CELLS = 2**28
"""1,024 devices × 128 layers × 1,024 experts are half of it."""

_NO_PLACEMENT = Effect(level=ERROR, does="cannot serve it (not run: our rule)")
RULES = Rules(
    engine="Omni-Infer",
    layers=rule.MOE,
    source="placement patterns of omni-ai-npu/omni-infer",
    effects={
        **dict.fromkeys((rule.NOT_INTEGER, rule.NEGATIVE, rule.RANGE, rule.COVERAGE, rule.LAYERS), _NO_PLACEMENT),
        rule.RAGGED: Effect(level=WARNING, does="allows redundancy in some layers only; the other engines refuse it"),
        rule.UNEVEN: Effect(level=WARNING, does="allows it; the other engines refuse it"),
        rule.DIVISIBILITY: _NO_PLACEMENT,
        rule.DUPLICATE: _NO_PLACEMENT,
        rule.REPLICAS: _NO_PLACEMENT,
        rule.EXPECTED: Effect(level=WARNING, does="reads the slots from the pattern"),
        rule.DEVICES: _NO_PLACEMENT,
        rule.EXTRA_LAYERS: Effect(level=WARNING, does="has no layer for it"),
    },
)


def write(document: PlanDocument, deployment: Deployment, output: Path, schema: str) -> Exported:
    """Write the pattern as int32, fillers left out.

    Raises `PlanError` for an expert twice on a rank, which the format cannot say, and `UsageError` when `output` cannot
    be written.
    """
    plan = document.plan()
    require_schema(schema, SCHEMAS)
    require_output(output, SUFFIXES)
    pattern = np.zeros((plan.ranks, plan.layers, plan.experts), np.int32)
    for layer, row in enumerate(plan.expert_of_slot):
        pattern[plan.rank_of_slot, layer, row] = 1
    fillers = sum(len(slots) for slots in fillers_of(document).values())
    if int(pattern.sum()) + fillers != plan.layers * plan.slots:
        raise PlanError("an expert is twice on a rank: a pattern cannot say so", where=document.policy)
    record = record_of(document, deployment, "omni")
    with replacing_with_sidecar(output, record) as temporary, temporary.open("wb") as stream:
        if output.suffix == ".npz":
            np.savez_compressed(stream, placement=pattern)
        else:
            np.save(stream, pattern)
    notes = ("a pattern has no slot order: each rank's experts are dealt to its slots by rising id",)
    return Exported(files=(output, sidecar_of(output)), launch=(), notes=notes)


def read(path: Path) -> EngineFile:
    """Read a pattern; nothing is unpickled. Raises `PlanError` for anything but an array [R, L, E] of 0 and 1."""
    holds = _pattern(path)
    rows, sizes = [], []
    for layer in range(holds.shape[1]):
        _, experts = np.nonzero(holds[:, layer])
        rows.append(tuple(experts.tolist()))
        sizes.append(tuple(holds[:, layer].sum(axis=1).tolist()))
    return EngineFile(
        path=path,
        layers=tuple(range(len(rows))),
        rows=tuple(rows),
        ranks_of_rows=tuple(sizes),
        experts=holds.shape[2],
    )


def check(file: EngineFile, deployment: Deployment) -> Sequence[Finding]:
    """Everything that is wrong with `file`."""
    return check_file(RULES, file, deployment)


def _pattern(path: Path) -> BoolArray:
    where = str(path)
    array = _array(path)
    if array.ndim != 3 or not array.size or array.size > MOST_CELLS:
        raise PlanError(f"array of shape {array.shape}, expected [devices, MoE layers, experts]", where=where)
    if array.dtype.kind not in "iub":
        raise PlanError(f"a pattern holds whole numbers, this one {array.dtype}", where=where)
    if not ((array == 0) | (array == 1)).all():
        raise PlanError("a pattern holds 0 and 1 only, this one other numbers", where=where)
    return array.astype(bool)


def _array(path: Path) -> AnyArray:
    if path.suffix not in SUFFIXES:
        raise PlanError(f"a pattern is {' or '.join(SUFFIXES)}", where=str(path), fix="check FILE and --engine")
    try:
        arrays = read_arrays(path)
    except TraceError as error:
        raise PlanError(error.what, where=str(path), fix=error.fix) from error
    if KEY not in arrays and len(arrays) != 1:
        raise PlanError(f"no array {KEY!r} among {sorted(arrays)}", where=str(path))
    return arrays[KEY] if KEY in arrays else next(iter(arrays.values()))
