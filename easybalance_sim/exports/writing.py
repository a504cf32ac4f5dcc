"""Where an export may be written, asked before anything is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.exports.sidecar import require_sidecar_place
from easybalance_sim.files import require_place


def require_schema(schema: str, schemas: Sequence[str]) -> str:
    """The schema to write: `schema`, or the first of `schemas` where none is named. Raises `UsageError`."""
    if not schema:
        return schemas[0] if schemas else ""
    if not schemas:
        raise UsageError(f"no schema {schema!r}: this engine has one format", where="--schema", fix="leave it out")
    if schema not in schemas:
        fix = f"{did_you_mean(schema, schemas)}choose {', '.join(schemas)}"
        raise UsageError(f"no schema {schema!r}", where="--schema", fix=fix)
    return schema


def require_output(output: Path, suffixes: Sequence[str]) -> None:
    """Raise `UsageError` when `output` does not end as the engine wants it, or it or its sidecar cannot be written."""
    if output.suffix not in suffixes:
        raise UsageError(f"the engine reads {' or '.join(suffixes)}", where=str(output), fix="choose another -o")
    require_place(output)
    require_sidecar_place(output)
