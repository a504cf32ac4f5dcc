"""Layouts of request traces: one module each, found by its name.

A reader has `matches(head: str) -> bool`, told the first line of a file that is not blank, and `read(path: Path,
reading: Reading) -> Workload`.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Protocol, cast

from easybalance_sim.simulate.serving.arrivals.rows import Reading
from easybalance_sim.simulate.serving.workload import Workload


class Reader(Protocol):
    """What every module here offers."""

    def matches(self, head: str) -> bool:
        """Whether a file that begins with this line is of this layout."""

    def read(self, path: Path, reading: Reading) -> Workload:
        """The requests of the file. Raises `TraceError` with file, row and field."""


def names() -> tuple[str, ...]:
    """All readers, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load(name: str) -> Reader:
    """The reader called `name`, one of `names`."""
    return cast(Reader, importlib.import_module(f"{__name__}.{name}"))


def columns(head: str) -> tuple[str, ...]:
    """Column names of a CSV header line."""
    return tuple(cell.strip().strip('"') for cell in head.split(","))
