"""JSON files of recordings: single documents, JSON Lines, or folders of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import NO_WORKLOAD

WHOLE, LINES = (".json",), (".jsonl", ".ndjson")
MOST_SHOWN = 160
"""Characters of a damaged file that a message repeats."""
Content = TypeVar("Content")


@dataclass(frozen=True, kw_only=True)
class Document:
    """One JSON text. where: file and line, for messages · workload: the sub-folder that it lies in."""

    where: str
    workload: str
    content: bytes


def documents(source: Path) -> Iterator[Document]:
    """The documents of a file or of all files below a folder, in name order; empty lines are skipped.

    Raises `TraceError` when there is no such file, or one cannot be read.
    """
    for path in _files(source):
        inside = path.parent.relative_to(source).as_posix() if source.is_dir() else "."
        workload = NO_WORKLOAD if inside == "." else inside
        try:
            if path.suffix in LINES:
                with path.open("rb") as stream:
                    for number, line in enumerate(stream, 1):
                        if line.strip():
                            yield Document(where=f"{path}, line {number}", workload=workload, content=line)
            else:
                yield Document(where=str(path), workload=workload, content=path.read_bytes())
        except OSError as error:
            raise TraceError(
                f"cannot be read: {error.strerror}", where=str(path), fix="check the path and its permissions"
            ) from error


def decoded(document: Document, kind: type[Content] | object, what: str) -> Content:
    """The document as a value of `kind`. Raises `TraceError` saying that it is not `what`, and at which key."""
    try:
        value: Content = msgspec.json.decode(document.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:MOST_SHOWN]
        raise TraceError(f"not {what}: {reason}", where=document.where, fix="record it again") from error
    return value


def _files(source: Path) -> list[Path]:
    if not source.exists():
        raise TraceError("no such file or folder", where=str(source), fix="check the path")
    if source.is_file():
        if source.suffix not in WHOLE + LINES:
            raise TraceError(
                f"{source.suffix or 'no'} ending", where=str(source), fix=f"give one of {', '.join(WHOLE + LINES)}"
            )
        return [source]
    found = [path for path in source.rglob("*") if path.suffix in WHOLE + LINES and not path.name.startswith(".")]
    if not found:
        raise TraceError("folder holds no .json or .jsonl file", where=str(source), fix="check the path")
    return sorted(found, key=lambda path: [_natural(part) for part in path.relative_to(source).parts])


def _natural(name: str) -> tuple[int, int, str]:
    """Files named by number in the order of the numbers."""
    stem = name.split(".")[0]
    number = int(stem) if stem.isdecimal() and len(stem) < 19 else -1
    return (number < 0, number, name)
