"""An engine's file as it is read, with all that is known of its engine's start: what was said, and its sidecar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from easybalance_sim import exports
from easybalance_sim.errors import PlanError, UsageError
from easybalance_sim.exports.checks import UNCHECKED, Rules
from easybalance_sim.exports.deployment import with_sidecar
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.exports.placement import MODEL_UNKNOWN
from easybalance_sim.exports.reading import shown
from easybalance_sim.exports.sidecar import read_sidecar, sidecar_of
from easybalance_sim.plan.lint import WARNING, Finding


@dataclass(frozen=True, kw_only=True)
class Opened:
    """file: with the schema that it is in · deployment: what was said, and what the sidecar says beyond it · rules: of
    that schema · findings: what is wrong with the sidecar."""

    file: EngineFile
    deployment: Deployment
    rules: Rules
    findings: tuple[Finding, ...]


def opened(path: Path, module: exports.Engine, said: Deployment) -> Opened:
    """Read an engine's file; what `said` does not say is taken from the file's sidecar, where that vouches for it.

    Raises `PlanError` for a file or a sidecar that cannot be read or that contradict each other, `UsageError` where the
    file is in another schema than is said.
    """
    file = module.read(path)
    known, findings = _complete(path, said, module)
    if isinstance(module, exports.Formats):
        schemas = module.schemas_of(file, known)
        if known.schema and known.schema not in schemas:
            _refuse_schema(path, known.schema, f"the file is one of {' or '.join(sorted(schemas))}", bool(said.schema))
        file = replace(file, schema=known.schema or schemas[0])
    rules = exports.rules_of(module, file.schema)
    return Opened(file=file, deployment=known, rules=rules, findings=tuple(findings))


def _refuse_schema(path: Path, schema: str, what: str, said: bool) -> None:
    """Raise the error of a schema that was said, or that the sidecar has."""
    if said:
        raise UsageError(f"{schema}: {what}", where="--schema", fix="leave it out")
    raise PlanError(f"it says schema {schema}, {what}", where=str(sidecar_of(path)), fix="export the plan again")


def _complete(path: Path, said: Deployment, module: exports.Engine) -> tuple[Deployment, list[Finding]]:
    """`said` with what the sidecar says beyond it, and what is wrong with that sidecar."""
    sidecar, findings = read_sidecar(path)
    if sidecar is None:
        return said, findings
    if sidecar.schema not in ("", *module.SCHEMAS):
        message = f"the schema {shown(sidecar.schema)} of its sidecar is not known: it is not looked at (--schema)"
        findings.append(Finding(level=WARNING, message=message, rule=UNCHECKED))
        sidecar = msgspec.structs.replace(sidecar, schema="")
    known, contradictions = with_sidecar(said, sidecar)
    findings += contradictions
    if sidecar.mtp_layers is None and said.moe_layers is None:
        findings.append(Finding(level=WARNING, message=MODEL_UNKNOWN, rule=UNCHECKED))
    return known, findings
