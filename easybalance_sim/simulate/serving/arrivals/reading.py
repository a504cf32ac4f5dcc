"""Request traces from files: the reader is chosen by what the file holds, several files become tenants of one load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from easybalance_sim.errors import TraceError, UsageError
from easybalance_sim.simulate.serving.arrivals import readers
from easybalance_sim.simulate.serving.arrivals.rows import Reading
from easybalance_sim.simulate.serving.arrivals.tenants import merged
from easybalance_sim.simulate.serving.workload import Workload

__all__ = ["Reading", "load_arrivals", "load_tenants", "named_sources"]

_HEAD_BYTES = 1 << 16


def load_arrivals(path: Path, *, reading: Reading | None = None) -> Workload:
    """The requests of a file, the first of them at 0 s or where its times say.

    Raises `TraceError` with file, row and field of the first thing that cannot be read.
    """
    head = _first_line(path)
    for name in readers.names():
        reader = readers.load(name)
        if reader.matches(head):
            return reader.read(path, reading or Reading())
    raise TraceError(
        f"no request trace: it begins with {head[:60]!r}",
        where=str(path),
        fix="give arrival_s,prompt_tokens,output_tokens, an Azure LLM trace (CSV), or a Mooncake trace (JSON lines)",
    )


def load_tenants(sources: Mapping[str, Path], *, reading: Reading | None = None) -> Workload:
    """The requests of several files, each file's as those of one tenant; every file begins at the same moment.

    Raises as `load_arrivals`, `UsageError` when there is no file.
    """
    if not sources:
        raise UsageError("no request trace", where="arrivals", fix="name a file")
    return merged({name: load_arrivals(path, reading=reading) for name, path in sources.items()})


def named_sources(words: Iterable[str]) -> dict[str, Path]:
    """`tenant=path` or `path` (its tenant is then the file's stem) → {tenant: path}. Raises `UsageError` for a tenant
    that is named twice or not at all."""
    found: dict[str, Path] = {}
    for word in words:
        name, equals, path = word.partition("=")
        tenant, file = (name, Path(path)) if equals else (Path(word).stem, Path(word))
        if not tenant or tenant in found:
            raise UsageError(f"tenant {tenant!r} is named twice or empty", where=word, fix="give tenant=path")
        found[tenant] = file
    return found


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", where=str(path), fix="check the path") from error
    lines = head.decode("utf-8-sig", errors="replace").splitlines()
    return next((line.strip() for line in lines if line.strip()), "")
