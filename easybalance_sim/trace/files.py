"""Opens trace files: Parquet checks, metadata, one model over all files, fingerprint."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from easybalance_sim.errors import TraceError
from easybalance_sim.trace.schema import METADATA_KEY, TraceMeta, check_meta, decode_meta, id_dtype

_BUFFER_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 24
_SAMPLES, _SAMPLE_BYTES = 16, 4096
_SAME = ("kind", "model", "layers", "experts", "top_k", "groups")


@dataclass(frozen=True, kw_only=True)
class LayoutHints:
    """What the user says of a file without metadata: layer ids, E, K and a model name."""

    layers: tuple[int, ...]
    experts: int
    top_k: int
    model: str = "unknown"
    groups: int = 1
    topk_group: int = 1

    def meta(self, kind: str) -> TraceMeta:
        """The metadata that these hints stand for."""
        return TraceMeta(
            kind=kind,
            layers=self.layers,
            experts=self.experts,
            top_k=self.top_k,
            model=self.model,
            groups=self.groups,
            topk_group=self.topk_group,
            dtype=id_dtype(self.experts),
        )


def expand(paths: Sequence[Path]) -> list[Path]:
    """The Parquet files of files and folders, folders in name order.

    Raises `TraceError` when there is none, or one twice: a plan fitted on it would be judged on the same tokens.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.glob("*.parquet") if not p.name.startswith("."))
            if not inside:
                raise TraceError("folder holds no .parquet file", where=str(path), fix="name a trace file or folder")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise TraceError("no such file", where=str(path), fix="check the path")
    if not found:
        raise TraceError("no trace given", fix="name at least one trace file")
    _require_distinct(found)
    return found


def _require_distinct(paths: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise TraceError("is given twice", where=str(path), fix="name each trace once")
        seen.add(path.resolve())


def open_parquet(path: Path, name: str = "") -> Any:
    """A `pyarrow.parquet.ParquetFile`; raises `TraceError` for an empty, truncated or foreign file.

    name: of the file in errors, its path where nothing else is said.
    """
    where = name or str(path)
    head, tail, version = _ends(path, where)
    if not head:
        raise TraceError("file is empty (0 bytes)", where=where, fix="record it again")
    if head != b"PAR1":
        raise TraceError("not a Parquet file", where=where, fix="convert it with `ebsim trace convert`")
    if tail != b"PAR1":
        raise TraceError(
            "Parquet file is truncated (its footer is missing)", where=where, fix="copy or record it again"
        )
    with reading(where):
        return _opened(path, _footer(path, version))


def identity(path: Path, name: str = "") -> str:
    """What tells a file from others under the same path: its size, its footer and samples of its pages, as sha256.

    Copies are equal, whenever they were made. Looked up again only when the file was written to.
    """
    _, _, version = _ends(path, name or str(path))
    return _sampled(path, version)


@lru_cache(maxsize=1024)
def _sampled(path: Path, version: tuple[int, int]) -> str:
    size, _ = version
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as stream:
        # Files of as many rows and bytes may have the same footer.
        for sample in range(_SAMPLES):
            stream.seek(size * sample // _SAMPLES)
            digest.update(stream.read(_SAMPLE_BYTES))
        stream.seek(max(0, size - 8))
        footer = int.from_bytes(stream.read(4), "little") + 8
        stream.seek(max(0, size - footer))
        digest.update(stream.read(footer))
    return digest.hexdigest()


@lru_cache(maxsize=1024)
def _footer(path: Path, version: tuple[int, int]) -> Any:
    """The footer of a file, parsed once: a file of thousands of row groups is opened again for every part of it."""
    file = _opened(path, None)
    # Arrow decodes names only when they are asked for, and damage may be there, too.
    _ = file.schema_arrow.names
    return file.metadata


def _opened(path: Path, footer: Any) -> Any:
    # Read ahead, Arrow would keep the whole file; without a buffer, a whole column of a row group.
    return pq.ParquetFile(
        path, metadata=footer, pre_buffer=False, buffer_size=_BUFFER_BYTES, page_checksum_verification=True
    )


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn what Arrow raises on damaged bytes and on texts that are no UTF-8 into a `TraceError`."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TraceError(f"damaged Parquet file: {reason}", where=where, fix="copy or record it again") from error


def read_meta(file: Any, path: Path, hints: LayoutHints | None, *, kind: str = "tokens") -> TraceMeta:
    """The file's metadata, or what `hints` say. Raises `TraceError` when there is neither."""
    raw = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    if raw is not None:
        return decode_meta(raw, str(path))
    if hints is None:
        raise TraceError(
            "metadata key ebsim.trace is missing, so layers, experts and top-k are unknown",
            where=str(path),
            fix="run `ebsim trace convert` with --model NAME, or --experts and --top-k",
        )
    meta = hints.meta("counts" if "counts" in file.schema_arrow.names else kind)
    check_meta(meta, str(path))
    return meta


def require_same_model(metas: Sequence[TraceMeta], paths: Sequence[Path]) -> TraceMeta:
    """The one metadata of all files. Raises `TraceError` naming two files that differ, and in what."""
    first = metas[0]
    for meta, path in zip(metas[1:], paths[1:], strict=True):
        for name in _SAME:
            if getattr(meta, name) != getattr(first, name):
                raise TraceError(
                    f"mixed models: {name} is {getattr(meta, name)!r} here and {getattr(first, name)!r} in {paths[0]}",
                    where=str(path),
                    fix="give traces of one model at a time",
                )
    return msgspec.structs.replace(first, ranks=max(meta.ranks for meta in metas))


def _ends(path: Path, where: str) -> tuple[bytes, bytes, tuple[int, int]]:
    """The first and the last four bytes of a file; its size and when it was written."""
    try:
        with path.open("rb") as stream:
            head, known = stream.read(4), os.fstat(stream.fileno())
            stream.seek(max(0, known.st_size - 4))
            return head, stream.read(4), (known.st_size, known.st_mtime_ns)
    except OSError as error:
        raise TraceError(
            f"cannot be read: {error.strerror}", where=where, fix="check the path and its permissions"
        ) from error


def file_fingerprints(paths: Sequence[Path], advance: Callable[[int], None] = lambda done: None) -> tuple[str, ...]:
    """sha256 of the contents of each file; advance: called with the bytes done."""
    return tuple(_sha256(path, advance) for path in paths)


def _sha256(path: Path, advance: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def fingerprint(files: Sequence[str]) -> str:
    """sha256 of a trace from the fingerprints of its files, in order."""
    return hashlib.sha256(b"".join(bytes.fromhex(one) for one in files)).hexdigest()
