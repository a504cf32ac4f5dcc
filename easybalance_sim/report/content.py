"""What a report page holds, before it is a page: a verdict, findings, sections of figures, tables and facts."""

from __future__ import annotations

import csv
import io
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import TYPE_CHECKING, Protocol

from easybalance_sim import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Cell = str | int | float | None

_FORMULA = re.compile(r"[=@\t]|[+-](?![\d.,]+(e[+-]?\d+)?[\s\w%/]*$)")
"""As a number with its sign and unit does not begin."""

LIBRARIES = ("numpy", "numba", "pyarrow", "matplotlib")


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """Plain data: one cell per column in every row; None = no value."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def csv(self) -> str:
        """The table as CSV text with a header line; numbers with 7 digits at least, None as an empty cell.

        Words that a spreadsheet would take for a formula begin with `'`: names in a report come from recordings.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([_written(cell) for cell in row] for row in (self.columns, *self.rows))
        return out.getvalue()


def _written(cell: Cell) -> Cell:
    if isinstance(cell, float) and not cell.is_integer():
        return f"{cell:.7g}"
    if not isinstance(cell, str):
        return cell
    # csv does not quote a carriage return, and readers end a line at it.
    text = cell.replace("\r", " ")
    return f"'{text}" if _FORMULA.match(text) else text


class Chart(Protocol):
    """What can be drawn. A chart is a value: the same chart gives the same bytes."""

    @property
    def size(self) -> tuple[float, float]:
        """Inches."""

    def table(self) -> DataTable:
        """All that is drawn, as data."""

    def draw(self, drawing: Drawing) -> None:
        """Draw it into an empty matplotlib figure of that size."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart with its words. name: [a-z0-9_]+, unique on its page, the name of its files · alt: what is to be seen,
    for those who cannot see it · conclusion: what to conclude, with the figures that show it."""

    name: str
    title: str
    alt: str
    conclusion: str
    chart: Chart


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of words and ready-made numbers (text as people read it). name: as of `Figure` · note: under it."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One number or word with what it is; note: why, or what it is made of."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts side by side under a title; name: as of `Figure`."""

    name: str
    title: str
    facts: tuple[Fact, ...]


Block = Figure | Table | Facts


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page. name: its anchor · lead: one or two sentences that say what it answers and the answer."""

    name: str
    title: str
    lead: str
    blocks: tuple[Block, ...]


class Mood(StrEnum):
    """How a headline is coloured; the word beside it says the same without colour."""

    GOOD = "good"
    BAD = "bad"
    UNSURE = "unsure"
    NEUTRAL = "neutral"


@dataclass(frozen=True, kw_only=True)
class Headline:
    """word: `ACCEPTED`, … · text: one sentence · lines: what has to be known beside it."""

    mood: Mood
    word: str
    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One criterion of the gate, numbers as people read them. ok: None = not judged."""

    criterion: str
    limit: str
    observed: str
    ok: bool | None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class MadeBy:
    """command: as typed, empty = not known · versions: of this package and what it counts with."""

    command: str
    versions: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole report. key: the few facts that stand beside the verdict · findings: empty where nothing is judged ·
    provenance: fingerprints, command line, versions · notes: what the run told. Raises `ValueError` for two figures of
    one name."""

    title: str
    subtitle: str
    headline: Headline
    key: tuple[Fact, ...]
    findings: tuple[Finding, ...]
    sections: tuple[Section, ...]
    provenance: tuple[Fact, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [figure.name for figure in self.figures()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"figures of one name would be one file: {', '.join(twice)}")

    def figures(self) -> tuple[Figure, ...]:
        """All figures, in order."""
        return tuple(block for section in self.sections for block in section.blocks if isinstance(block, Figure))


def made_by(command: str) -> MadeBy:
    """The versions that are running."""
    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return MadeBy(command=command, versions={"ebsim": __version__, "python": platform.python_version(), **libraries})
