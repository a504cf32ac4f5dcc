"""What `ebsim lint` does: an engine's file, or a plan file, against every rule that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim import exports
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports.checks import FILLER, MOE, MOVED, PLAN_FILE, UNCHECKED
from easybalance_sim.exports.deployment import deployment_of
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.fillers import filled_experts
from easybalance_sim.exports.moves import check_moves
from easybalance_sim.exports.opening import opened
from easybalance_sim.exports.sidecar import read_sidecar
from easybalance_sim.exports.writing import require_schema
from easybalance_sim.plan.lint import ERROR, WARNING, Finding, lint
from easybalance_sim.plan.planfile import FORMAT, PlanDocument, read_plan, refuse_lossy


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found. title: engine and version, or that it is a plan file · layers: rows of the file."""

    path: Path
    title: str
    layers: int
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        """Findings that forbid loading the file."""
        return sum(finding.level == ERROR for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON object."""
        return {
            "file": str(self.path),
            "format": self.title,
            "layers": self.layers,
            "errors": self.errors,
            "warnings": len(self.findings) - self.errors,
            "findings": [
                {name: getattr(finding, name) for name in ("level", "rule", "layer", "slot", "message")}
                for finding in self.findings
            ],
        }


def lint_named(
    path: Path,
    engine: str = "",
    *,
    ranks: int | None = None,
    model: str = "",
    experts: int | None = None,
    schema: str = "",
    redundant: int | None = None,
    previous: Path | None = None,
) -> Report:
    """The file of an engine as `lint_file`; without an engine a plan file, as `lint_plan`.

    Raises `UsageError` when what describes an engine is said of a plan file, else as those two.
    """
    if engine:
        deployment = deployment_of(model, ranks=ranks, experts=experts, redundant=redundant, schema=schema)
        return lint_file(path, engine, deployment, previous)
    said = {"ranks": ranks, "model": model or None, "experts": experts, "schema": schema or None,
            "redundant": redundant, "previous": previous}  # fmt: skip
    for name, value in said.items():
        if value is not None:
            raise UsageError("describes an engine, a plan file has none", where=f"--{name}", fix="add --engine")
    return lint_plan(path)


def lint_file(path: Path, engine: str, deployment: Deployment, previous: Path | None = None) -> Report:
    """Everything wrong with an engine's file; previous: the file of that engine, or the plan file, loaded now.

    What `deployment` does not say is taken from the file's sidecar, where that vouches for the file. Raises
    `PlanError` for a file that is none of this engine, `UsageError` for an engine or a schema that there is not, or
    that is not the file's.
    """
    module = exports.load(engine)
    require_schema(deployment.schema, module.SCHEMAS)
    _refuse_own_file(path, engine)
    found = opened(path, module, deployment)
    file, rules = found.file, found.rules
    findings = [*module.check(file, found.deployment), *found.findings]
    if previous is not None and MOVED in rules.effects:
        findings += check_moves(rules, file, _previous(previous, module), found.deployment.ranks)
    elif previous is not None:
        message = f"--previous is not looked at: {rules.engine} takes kept experts in any slot"
        findings.append(Finding(level=WARNING, message=message, rule=UNCHECKED))
    ordered = tuple(sorted(findings, key=_errors_first))
    return Report(path=path, title=exports.title_of(module, rules), layers=len(file.rows), findings=ordered)


def lint_plan(path: Path) -> Report:
    """Everything wrong with a plan file, an edited one included. Raises `PlanError` for what is no plan file."""
    if path.is_dir() or not is_plan_file(path):
        raise PlanError("not a plan file", where=str(path), fix=_whose(path))
    title = "plan file"
    try:
        document = read_plan(path)
    except PlanError as error:
        finding = Finding(level=ERROR, message=_without_place(error, path), rule=PLAN_FILE)
        return Report(path=path, title=title, layers=0, findings=(finding,))
    found = lint(document.plan(), document.topology.topology())
    fillers = filled_experts(document)
    findings = sorted((_placed(one, document, fillers) for one in found), key=_errors_first)
    return Report(path=path, title=title, layers=len(document.layers), findings=tuple(findings))


def _errors_first(finding: Finding) -> tuple[bool, bool]:
    """Errors, then warnings; those of the whole file first."""
    return finding.level != ERROR, finding.layer is not None


def _placed(finding: Finding, document: PlanDocument, fillers: Mapping[int, frozenset[int]]) -> Finding:
    """A finding with the id of its layer instead of its row; a warning where it is of a filler."""
    if finding.layer is None:
        return finding
    layer = document.layers[finding.layer]
    placed = replace(finding, layer=layer.layer)
    if finding.slot is None or layer.expert_of_slot[finding.slot] not in fillers.get(layer.layer, ()):
        return placed
    message = f"{finding.message}: a filler of `ebsim adopt`, the deployed layer has fewer slots"
    return replace(placed, level=WARNING, message=message, rule=FILLER)


def _whose(path: Path) -> str:
    """How to say which engine's file it is; its sidecar may know."""
    sidecar, _ = read_sidecar(path)
    if sidecar is not None and sidecar.engine in exports.names():
        return f"add --engine {sidecar.engine}"
    return "say whose file it is with --engine"


def is_plan_file(path: Path) -> bool:
    """Whether `path` is JSON that calls itself a plan. Raises `PlanError` when it cannot be read, or is lossy."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not isinstance(content, dict):
        return False
    refuse_lossy(content, str(path))
    return content.get("format") == FORMAT


def _refuse_own_file(path: Path, engine: str) -> None:
    """Raise `PlanError` for a plan file and for router settings: an engine's reader would only say what it misses."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if not isinstance(content, dict):
        return
    refuse_lossy(content, str(path), fix="give a placement file; such settings never go into one")
    if content.get("format") == FORMAT:
        raise PlanError(
            f"is a plan file of ebsim, no file of {engine}",
            where=str(path),
            fix=f"check it with `ebsim lint {path.name}` alone, or export it first (`ebsim export {engine}`)",
        )


def _previous(path: Path, module: exports.Engine) -> EngineFile:
    """The placement that is loaded now, its layers numbered as the engine's files number them."""
    if not is_plan_file(path):
        return module.read(path)
    document = read_plan(path)
    ids = range(len(document.layers)) if module.RULES.layers == MOE else document.layer_ids
    return EngineFile(
        path=path,
        layers=tuple(ids),
        rows=tuple(record.expert_of_slot for record in document.layers),
        ranks_of_rows=(document.plan_slots_per_rank,) * len(document.layers),
        experts=document.experts,
    )


def _without_place(error: PlanError, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")
