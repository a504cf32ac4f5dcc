"""What `ebsim adopt` does: a placement that an engine runs with becomes a plan file, without any evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from easybalance_sim import exports
from easybalance_sim.cluster.topology import Topology, uniform
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports.checks import MOE, UNCHECKED, Rules
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.fillers import ADOPTED, FILLERS, filled_up
from easybalance_sim.exports.linting import Report, lint_file
from easybalance_sim.exports.opening import opened
from easybalance_sim.exports.placement import filler_row
from easybalance_sim.files import require_place
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument, TraceRecord, document, write_plan

POLICY = "adopted"
STATUS = "not judged"
NODE = 8
"""Ranks that share NVLink where nothing is said, as in an HGX machine."""


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """A plan document without evidence. notes: what was assumed, and what was changed."""

    document: PlanDocument
    notes: tuple[str, ...]


def adopt_file(
    path: Path, engine: str, deployment: Deployment, *, ranks_per_node: int | None = None, output: Path | None = None
) -> Adopted | Report:
    """`adopt` of a file without errors, else what is wrong with it; its warnings are among the notes.

    output: the plan file to write, whole or not at all. Raises `UsageError` where that cannot be written or `path`
    would be lost, else as `adopt` and `lint_file`.
    """
    if output is not None:
        require_place(output, keep=[path, *(path.rglob("*") if path.is_dir() else ())])
    report = lint_file(path, engine, deployment)
    if report.errors:
        return report
    made = adopt(path, engine, deployment, ranks_per_node=ranks_per_node)
    if output is not None:
        write_plan(output, made.document)
    warnings = {one.rule: one.message for one in reversed(report.findings) if one.rule != UNCHECKED}
    return replace(made, notes=(*made.notes, *warnings.values()))


def adopt(path: Path, engine: str, deployment: Deployment, *, ranks_per_node: int | None = None) -> Adopted:
    """The plan file of an engine's file that has passed its rules.

    Rows of dense layers are left out, and those of draft (MTP) layers that are fillers or not loaded by the engine.

    What `deployment` does not say is taken from the file's sidecar, where that vouches for the file.
    Where layers have slots of their own number, the smaller ones are filled up with second copies of experts on the
    rank that alone serves them, which leaves the load of every rank as it was. Raises `PlanError`, `UsageError`.
    """
    module = exports.load(engine)
    found = opened(path, module, deployment)
    file, deployment, rules = found.file, found.deployment, found.rules
    ranks = _ranks(file, deployment)
    experts = deployment.experts or file.experts or max(max(row) for row in file.rows) + 1
    placed = deployment.moe_layers or tuple(sorted(file.layers))
    drafts = _drafts(file, deployment, rules, experts)
    layers = tuple(sorted({*placed, *drafts})) if drafts else placed
    file = _of_layers(file, layers, rules)
    topology, assumed = _topology(ranks, deployment.node_of_rank, ranks_per_node)
    notes = [*_assumed(file, deployment), *assumed, *(_KEPT.format(layer) for layer in drafts)]
    title = exports.title_of(module, rules)
    adopted: dict[str, Any] = {"engine": title, "file": path.name, "sha256": _digest(path), "notes": notes}
    if file.ranks_of_rows is not None and len(set(file.ranks_of_rows)) > 1:
        file, added = filled_up(file)
        adopted[FILLERS] = {str(layer): slots for layer, slots in added.items()}
        notes.append(
            f"layers differ in slots: filled up with second copies on the same rank ({sum(map(len, added.values()))} "
            "in all), which leaves the load of every rank as deployed (`ebsim lint` warns of them, only an export for "
            "omni leaves them out)"
        )
    plan = _plan(file, experts, ranks)
    made = document(
        plan,
        layer_ids=layers,
        topology=replace(topology, slots_per_rank=plan.slots_per_rank),
        trace=_NO_TRACE,
        dispatch="even",
        evidence={ADOPTED: adopted},
        verdict={"status": STATUS, "findings": []},
        migration={},
        model=deployment.model or "unknown",
    )
    return Adopted(document=made, notes=tuple(notes))


_NOTHING = {"steps": None, "windows": None, "tokens": None}
_NO_TRACE = TraceRecord(fingerprint="", files=(), file_fingerprints=(), fit=_NOTHING, held_out=_NOTHING, split={})


_KEPT = (
    "draft (MTP) layer {} is placed, too, and a layer of the plan: only a trace that has it can judge the plan "
    "(--layers without --model leaves it out)"
)


def _drafts(file: EngineFile, deployment: Deployment, rules: Rules, experts: int) -> list[int]:
    """The draft layers that the file places otherwise than a filler would, where the engine loads their rows at all."""
    if not rules.drafts:
        return []
    row_of = dict(zip(file.layers, file.rows, strict=True))
    if rules.one_row and len(file.rows) == 1:
        row_of = dict.fromkeys(deployment.mtp_layers, file.rows[0])
    drafts = [layer for layer in deployment.mtp_layers if layer in row_of]
    return [layer for layer in drafts if list(row_of[layer]) != filler_row(len(row_of[layer]), experts)]


def _ranks(file: EngineFile, deployment: Deployment) -> int:
    """What was said, or the devices that the file lists."""
    if deployment.ranks is not None:
        return deployment.ranks
    if file.ranks_of_rows is None:
        raise UsageError("the file does not say how many ranks it is for", where=str(file.path), fix="say --ranks")
    return len(file.ranks_of_rows[0])


def _plan(file: EngineFile, experts: int, ranks: int) -> Plan:
    try:
        return file.plan(experts, ranks, POLICY)
    except PlanError as error:
        place = error.where.removeprefix(str(file.path))
        where = str(file.path) if place in ("", POLICY) else f"{file.path}: {place}"
        raise PlanError(error.what, where=where, fix=error.fix) from error


def _of_layers(file: EngineFile, layers: Sequence[int], rules: Rules) -> EngineFile:
    """Only the rows of the MoE layers, whose ids are given."""
    numbered = rules.layers == MOE
    if len(file.rows) == 1 and (numbered or rules.one_row):
        # One row for every layer is a form of vLLM's that its rules allow.
        return replace(file, layers=tuple(layers), rows=file.rows * len(layers))
    row_of = {layer: row for row, layer in enumerate(file.layers)}
    wanted = range(len(layers)) if numbered else layers
    missing = [layer for layer in wanted if layer not in row_of]
    if missing:
        raise PlanError(f"no row for MoE layer {missing[0]}", where=str(file.path), fix="check --model or --layers")
    chosen = [row_of[layer] for layer in wanted]
    devices = file.ranks_of_rows
    return replace(
        file,
        layers=tuple(layers),
        rows=tuple(file.rows[row] for row in chosen),
        ranks_of_rows=None if devices is None else tuple(devices[row] for row in chosen),
    )


def _topology(ranks: int, node_of_rank: tuple[int, ...], ranks_per_node: int | None) -> tuple[Topology, Sequence[str]]:
    """Equal ranks in the nodes that were said or that the sidecar names, and what was assumed of them."""
    topology = uniform(ranks, ranks_per_node or min(NODE, ranks), 1)
    if ranks_per_node is None and len(node_of_rank) == ranks:
        return replace(topology, node_of_rank=np.array(node_of_rank)), ()
    assumed = ranks_per_node is None and ranks > NODE
    return topology, [f"{NODE} ranks per node are assumed (say --ranks-per-node)"] if assumed else ()


def _assumed(file: EngineFile, deployment: Deployment) -> list[str]:
    if deployment.moe_layers is not None:
        return []
    return [
        f"the model is not known: every row is taken for an MoE layer, ids {min(file.layers)} to {max(file.layers)} "
        "(say --model or --layers)"
    ]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
