"""Importers: one module per source format, found by its name.

An importer has `convert(job: Conversion) -> list[Converted]`; its name with dashes is the KIND of `ebsim import`, the
first line of its docstring what help says of it. One whose files can be told by their schema also has
`matches(path: Path) -> bool`, so that `ebsim trace convert` finds it. Adding one is adding a module here, or an entry
point of the group `easybalance_sim.importers` in another package.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from easybalance_sim.errors import TraceError

# Help lists the kinds, and must not wait for NumPy and Arrow.
if TYPE_CHECKING:
    from easybalance_sim.trace.conversion import Conversion, Converted

ENTRY_POINTS = "easybalance_sim.importers"


class Importer(Protocol):
    """What every importer module offers; `matches(path) -> bool` looks at names and schemas only and may be missing."""

    def convert(self, job: Conversion) -> list[Converted]:
        """Write `job.output` (or several files named after it) and say what was written."""


def names() -> tuple[str, ...]:
    """Names of all importers, sorted."""
    own = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(sorted({*own, *(point.name for point in entry_points(group=ENTRY_POINTS))}))


def load(name: str) -> Importer:
    """The importer called `name`. Raises KeyError for one that `names` does not list."""
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            return cast(Importer, point.load())
    if name not in names():
        raise KeyError(name)
    return cast(Importer, importlib.import_module(f"{__name__}.{name}"))


def titles() -> dict[str, str]:
    """The first line of each importer's docstring by its KIND (name with dashes); no importer is imported for it."""
    own = {module.name: f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)}
    modules = own | {point.name: point.module for point in entry_points(group=ENTRY_POINTS)}
    return {name.replace("_", "-"): _title(modules[name]) for name in sorted(modules)}


def _title(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.has_location or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def find(path: Path) -> Importer:
    """The importer for `path`. Raises `TraceError` when the path is missing or nobody reads it."""
    if not path.exists():
        raise TraceError("no such file or folder", where=str(path), fix="check the path")
    for name in names():
        importer = load(name)
        matches = getattr(importer, "matches", None)
        if matches is not None and matches(path):
            return importer
    raise TraceError(
        "none of the layouts that `ebsim trace convert` reads",
        where=str(path),
        fix="give a trace (step, request, experts), routed tokens (request_id, token_pos, experts) "
        "or a count table (layer, counts)",
    )
