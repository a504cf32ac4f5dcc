"""`FILE.ebsim.json` beside an engine's file: what the engine's own format has no place for, its sha256 first of all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from easybalance_sim.errors import PlanError
from easybalance_sim.exports.checks import CHECKSUM
from easybalance_sim.files import write_text
from easybalance_sim.plan.lint import ERROR, Finding

ENDING = ".ebsim.json"
DIGEST = "sha256"


def sidecar_of(path: Path) -> Path:
    """Where the sidecar of an engine's file stands."""
    return path.with_name(path.name + ENDING)


def write_sidecar(path: Path, content: Mapping[str, Any]) -> Path:
    """Write `content` with the sha256 of the file or folder at `path`, which is complete by now; returns where."""
    sidecar = sidecar_of(path)
    said = {**content, DIGEST: _digest(path)}
    write_text(sidecar, json.dumps(said, indent=2, sort_keys=True, allow_nan=False) + "\n")
    return sidecar


def check_sidecar(path: Path) -> list[Finding]:
    """An error when the file is not the one that its sidecar was written for; nothing where there is no sidecar."""
    sidecar = sidecar_of(path)
    if not sidecar.exists():
        return []
    try:
        said = json.loads(sidecar.read_bytes())
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(sidecar), fix="check the path") from error
    except (ValueError, RecursionError):
        return [_broken(f"its sidecar {sidecar.name} is not JSON, or cut short: export the plan again")]
    wanted = said.get(DIGEST) if isinstance(said, dict) else None
    if not isinstance(wanted, str):
        return [_broken(f"its sidecar {sidecar.name} holds no {DIGEST}: export the plan again")]
    if wanted != _digest(path):
        return [_broken(f"it does not match the {DIGEST} in {sidecar.name}: it was edited since it was exported")]
    return []


def _broken(message: str) -> Finding:
    return Finding(level=ERROR, message=message, rule=CHECKSUM)


def _digest(path: Path) -> str:
    """sha256 of a file; of a folder: of the list of its files and theirs, but not what a build leaves there."""
    if not path.is_dir():
        return _file_digest(path)
    inside = ((file.relative_to(path), file) for file in sorted(path.rglob("*")) if file.is_file())
    lines = [f"{_file_digest(file)} {name.as_posix()}\n" for name, file in inside if not _is_built(name)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _is_built(name: Path) -> bool:
    return any(part in ("build", "__pycache__") or part.endswith(".egg-info") for part in name.parts)


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
