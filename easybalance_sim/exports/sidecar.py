"""`FILE.ebsim.json` beside an engine's file: what the engine's own format has no place for, its sha256 first of all."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from easybalance_sim.cluster.topology import MOST_RANKS
from easybalance_sim.errors import PlanError
from easybalance_sim.exports.checks import CHECKSUM
from easybalance_sim.files import replacing, replacing_folder, require_place
from easybalance_sim.plan.lint import ERROR, Finding

ENDING = ".ebsim.json"
DIGEST = "sha256"

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Layer = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Node = Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """What a sidecar says of the engine's start; its other keys are for people.

    sha256: of the file · schema: its format, where the engine has several · layers: of the plan, absolute ids ·
    hidden_layers, mtp_layers: of the model, None where it was not known when the file was written.
    """

    sha256: str
    engine: str = ""
    schema: str = ""
    model: str = ""
    ranks: _Count
    experts: _Count
    node_of_rank: tuple[_Node, ...] = ()
    slots_per_rank: tuple[_Count, ...]
    layers: tuple[_Layer, ...]
    hidden_layers: _Count | None = None
    mtp_layers: tuple[_Layer, ...] | None = None


def sidecar_of(path: Path) -> Path:
    """Where the sidecar of an engine's file or folder stands."""
    named = path if path.name.strip(".") else path.resolve()
    return named.parent / f"{named.name}{ENDING}"


def require_sidecar_place(path: Path) -> None:
    """Raise `UsageError` when the sidecar of `path` could not be written."""
    require_place(sidecar_of(path))


@contextlib.contextmanager
def replacing_with_sidecar(path: Path, content: Mapping[str, Any], *, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary file, or a folder, for `path`; on success it and its sidecar with `content` take their places.

    On any exception neither does. Killed in between, the sidecar is still the old one, and `ebsim lint` says so.
    """
    place = replacing_folder if folder else replacing
    with replacing(sidecar_of(path)) as beside, place(path) as temporary:
        yield temporary
        said = {**content, DIGEST: _digest(temporary)}
        beside.write_text(json.dumps(said, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read_sidecar(path: Path) -> tuple[Sidecar | None, list[Finding]]:
    """The sidecar of `path` where there is one and it vouches for the file, and what is wrong with it.

    Raises `PlanError` when either cannot be read.
    """
    sidecar = sidecar_of(path)
    if not sidecar.exists():
        return None, []
    try:
        text = sidecar.read_bytes()
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(sidecar), fix="check the path") from error
    try:
        said = msgspec.json.decode(text, type=Sidecar)
    except msgspec.ValidationError as error:
        return None, [_broken(f"its sidecar {sidecar.name} is none: {error}; export the plan again")]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, [_broken(f"its sidecar {sidecar.name} is not JSON, or cut short: export the plan again")]
    if said.sha256 != _digest(path):
        what = f"it does not match the {DIGEST} in {sidecar.name}: it was edited since it was exported"
        return None, [_broken(what)]
    return said, []


def _broken(message: str) -> Finding:
    return Finding(level=ERROR, message=message, rule=CHECKSUM)


def _digest(path: Path) -> str:
    """sha256 of a file; of a folder: of the list of its files and theirs, but not what a build leaves there."""
    if not path.is_dir():
        return _file_digest(path)
    inside = ((file.relative_to(path), file) for file in sorted(path.rglob("*")) if file.is_file())
    lines = [f"{_file_digest(file)} {name.as_posix()}\n" for name, file in inside if not is_built(name)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def is_built(name: Path) -> bool:
    """Whether a file of a Python package, by its path in it, is what a build or a run left there."""
    return any(part in ("build", "__pycache__") or part.endswith(".egg-info") for part in name.parts)


def _file_digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise PlanError(f"cannot read: {error.strerror}", where=str(path), fix="check the path") from error
