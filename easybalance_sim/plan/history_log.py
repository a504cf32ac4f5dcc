"""The log of a history: one record a line, each with the sha256 of the line before it, and a line that seals them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from easybalance_sim.errors import PlanError
from easybalance_sim.plan import canonical

NOTHING_BEFORE = "0" * 64
RESTORE = "restore the folder from a backup"


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the log. record: its number, from 1 · event: a plan was added, or an older one was taken back ·
    generation: number in this history of the plan that is in force from here · plan_sha256: of the plan file's bytes ·
    plan_fingerprint, plan_generation, parent_fingerprint: as the plan says · rank_imbalance_p99: held-out, None when
    the plan was never judged · slots: of a layer, on all ranks · trace: what the plan was made from · previous: sha256
    of the line before."""

    record: int
    event: Literal["added", "rolled back"]
    generation: int
    plan_sha256: str
    plan_fingerprint: str
    plan_generation: int
    parent_fingerprint: str | None
    model: str
    layers: int
    experts: int
    policy: str
    verdict: str
    rank_imbalance_p99: float | None
    slots: int
    trace: dict[str, Any]
    note: str
    previous: str


def chain(data: bytes, log: Path) -> tuple[tuple[Record, ...], tuple[bytes, ...]]:
    """The records of a whole log and their lines, every link checked.

    Raises `PlanError` that names the log and the record that was edited, cut, moved or put in.
    """
    *lines, seal, end = [b"", *data.split(b"\n")]
    lines = lines[1:]
    if end or not lines:
        raise PlanError("the log was cut: its last line is not whole", where=str(log), fix=RESTORE)
    records = tuple(_decoded(line, number, log) for number, line in enumerate(lines, start=1))
    digests = [NOTHING_BEFORE, *map(digest, lines)]
    holds = [record.previous == before for record, before in zip(records, digests, strict=False)]
    if not all(holds):
        raise PlanError(_edited(holds), where=str(log), fix=RESTORE)
    if seal != _seal(lines):
        raise PlanError(
            f"the seal does not fit record {len(records)}: it was edited, or records were cut or put in",
            where=str(log),
            fix=RESTORE,
        )
    return records, tuple(lines)


def line_of(record: Record) -> bytes:
    """The line that a record is. Raises `PlanError` for what JSON cannot hold."""
    return _rendered(canonical.plain(msgspec.to_builtins(record), "record"))


def log_of(lines: Sequence[bytes]) -> bytes:
    """The whole log, sealed."""
    return b"".join(line + b"\n" for line in (*lines, _seal(lines)))


def digest(content: bytes) -> str:
    """sha256 as hex digits."""
    return hashlib.sha256(content).hexdigest()


def _decoded(line: bytes, number: int, log: Path) -> Record:
    where = f"{log}: record {number}"
    try:
        record = msgspec.json.decode(line, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PlanError(f"not a record: {error}", where=where, fix=RESTORE) from error
    if record.record != number:
        raise PlanError(f"record {record.record} stands in its place", where=where, fix=RESTORE)
    return record


def _edited(holds: Sequence[bool]) -> str:
    """Where a link is broken both ends may be at fault; the one whose other link is broken too is."""
    bad = holds.index(False) + 1
    both = bad < len(holds) and not holds[bad]
    return f"record {bad if both or bad == 1 else bad - 1} was edited: the sha256 in record {bad} is another one"


def _seal(lines: Sequence[bytes]) -> bytes:
    return _rendered({"records": len(lines), "sha256": digest(lines[-1])})


def _rendered(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
