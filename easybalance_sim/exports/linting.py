"""What `ebsim lint` does: an engine's file, or a plan file, against every rule that is known of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from easybalance_sim import exports
from easybalance_sim.errors import PlanError
from easybalance_sim.exports.checks import MOE, MOVED, PLAN_FILE, UNCHECKED
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.moves import check_moves
from easybalance_sim.exports.sidecar import check_sidecar
from easybalance_sim.plan.lint import ERROR, WARNING, Finding, lint
from easybalance_sim.plan.planfile import FORMAT, read_plan


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


def lint_file(path: Path, engine: str, deployment: Deployment, previous: Path | None = None) -> Report:
    """Everything wrong with an engine's file; previous: the file of that engine, or the plan file, loaded now.

    Raises `PlanError` for a file that is none of this engine, `UsageError` for an unknown engine.
    """
    module = exports.load(engine)
    file = module.read(path)
    findings = [*module.check(file, deployment), *check_sidecar(path)]
    if previous is not None and MOVED in module.RULES.effects:
        findings += check_moves(module.RULES, file, _previous(previous, module), deployment.ranks)
    elif previous is not None:
        message = f"--previous is not looked at: {module.RULES.engine} takes kept experts in any slot"
        findings.append(Finding(level=WARNING, message=message, rule=UNCHECKED))
    ordered = sorted(findings, key=lambda one: (one.level != ERROR, one.layer is not None))
    return Report(path=path, title=module.TITLE, layers=len(file.rows), findings=tuple(ordered))


def lint_plan(path: Path) -> Report:
    """Everything wrong with a plan file, an edited one included. Raises `PlanError` for what is no plan file."""
    if not is_plan_file(path):
        raise PlanError("not a plan file", where=str(path), fix="say whose file it is with --engine")
    title = "plan file"
    try:
        document = read_plan(path)
    except PlanError as error:
        finding = Finding(level=ERROR, message=_without_place(error, path), rule=PLAN_FILE)
        return Report(path=path, title=title, layers=0, findings=(finding,))
    ids = document.layer_ids
    findings = tuple(
        finding if finding.layer is None else replace(finding, layer=ids[finding.layer])
        for finding in lint(document.plan(), document.topology.topology())
    )
    return Report(path=path, title=title, layers=len(ids), findings=findings)


def is_plan_file(path: Path) -> bool:
    """Whether `path` is JSON that calls itself a plan. Raises `PlanError` when it cannot be read."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


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
