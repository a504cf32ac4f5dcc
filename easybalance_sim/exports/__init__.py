"""Placement files of serving engines. One module in `engines/` = one engine, found by its name.

An engine module offers what `Engine` lists. Other packages add engines through the entry point group
`easybalance_sim.exports`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

from easybalance_sim.errors import UsageError, did_you_mean
from easybalance_sim.exports import engines
from easybalance_sim.exports.checks import Rules
from easybalance_sim.exports.engine_file import Deployment, EngineFile
from easybalance_sim.plan.lint import Finding
from easybalance_sim.plan.planfile import PlanDocument

ENTRY_POINTS = "easybalance_sim.exports"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export wrote. files: paths, the one that the engine is pointed at first · launch: the flags to start the
    engine with, a line each · notes: what a user must know before loading it."""

    files: tuple[Path, ...]
    launch: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Engine(Protocol):
    """What an engine module offers; one with several formats may offer what `Formats` lists, too."""

    TITLE: str
    """Engine and the version whose format and checks were read."""

    SUFFIXES: tuple[str, ...]
    """File endings it writes; the first is the default."""

    SCHEMAS: tuple[str, ...]
    """What `schema` may be, the default first; empty where the engine has one format."""

    RULES: Rules
    """What the engine does with a file that breaks a rule."""

    def write(self, document: PlanDocument, deployment: Deployment, output: Path, schema: str) -> Exported:
        """Write the file for `output`, whole or not at all. Raises `PlanError` for what the engine cannot hold."""

    def read(self, path: Path) -> EngineFile:
        """Read a file of this engine as it stands. Raises `PlanError` when it is not one at all."""

    def check(self, file: EngineFile, deployment: Deployment) -> Sequence[Finding]:
        """Everything that is wrong with `file` for this engine, whether the engine itself looks or not."""


@runtime_checkable
class Formats(Protocol):
    """What an engine module offers whose formats differ in more than their names."""

    def schemas_of(self, file: EngineFile, deployment: Deployment) -> Sequence[str]:
        """Which of `SCHEMAS` the file can be in, the likeliest first."""

    def rules_for(self, schema: str) -> Rules:
        """What the engine does with a file in `schema` that breaks a rule."""

    def suffix_for(self, schema: str) -> str:
        """The default ending of a file in `schema`."""


def rules_of(module: Engine, schema: str) -> Rules:
    """The rules that a file in `schema` is held to."""
    return module.rules_for(schema) if isinstance(module, Formats) else module.RULES


def title_of(module: Engine, rules: Rules) -> str:
    """The engine and the version whose rules they are."""
    return module.TITLE if rules is module.RULES else rules.engine


def suffix_of(module: Engine, schema: str) -> str:
    """The default ending of a file in `schema`."""
    return module.suffix_for(schema) if isinstance(module, Formats) else module.SUFFIXES[0]


def names() -> tuple[str, ...]:
    """Names of all engines as the command line writes them, sorted."""
    own = (module.name.replace("_", "-") for module in pkgutil.iter_modules(engines.__path__))
    return tuple(sorted({*own, *(point.name for point in _points())}))


def load(name: str) -> Engine:
    """The engine called `name`. Raises `UsageError` for one that `names` does not list."""
    for point in _points():
        if point.name == name:
            return cast(Engine, point.load())
    if name not in names():
        raise UsageError(f"no engine {name!r}", fix=f"{did_you_mean(name, names())}choose {', '.join(names())}")
    return cast(Engine, importlib.import_module(f"{engines.__name__}.{name.replace('-', '_')}"))


def _points() -> Sequence[EntryPoint]:
    return tuple(entry_points(group=ENTRY_POINTS))
