"""A page as HTML without scripts and without anything fetched: a file of its own, or a fragment for a notebook."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from itertools import groupby
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from easybalance_sim.report.canvas import UNWRITABLE, inline_svg_of
from easybalance_sim.report.content import Block, Cell, DataTable, Facts, Figure, Page, Table

FEW_ROWS, FEW_COLUMNS = 24, 8
"""Data of a figure that are shown as a table, too: no more than that."""

_NUMBER = re.compile(r"[-+−±~≈<>≤≥ ]*\d[\d.,  ]*(e[-+]?\d+)?( ?[%×xµ°a-zA-Z]{1,4}(/[a-zA-Z]+)?)?")
_NOTHING = {"", "–", "-", "n/a"}


def html_of(page: Page, drawn: Callable[[int], object] = bool) -> str:
    """The page as one file: no script, nothing from the network, light and dark, for screens, phones and paper.

    drawn: told 1 with every figure that is there.
    """
    return _rendered("page.html.j2", page, "", drawn)


def fragment_of(page: Page) -> str:
    """The page as one `<div class="ebsim-report">` for a notebook: verdict and key facts open, the rest folded away.

    Ids begin with a number made from the page: several fragments may stand in one document.
    """
    return _rendered("fragment.html.j2", page, f"e{_fingerprint(page):08x}-", bool)


def csv_link(table: DataTable) -> str:
    """The table as the address of a download, `data:text/csv;…`."""
    return "data:text/csv;charset=utf-8," + quote(table.csv(), safe=",;:/()*+-_.!~@$'=?[]|{}", errors="replace")


def _fingerprint(page: Page) -> int:
    shown = (page.title, page.subtitle, repr(page.key), *(figure.chart.table().csv() for figure in page.figures()))
    return zlib.crc32("\0".join(shown).encode())


def _rendered(template: str, page: Page, prefix: str, drawn: Callable[[int], object]) -> str:
    def svg(figure: Figure, prefix: str) -> Markup:
        made = Markup(inline_svg_of(figure.chart, prefix + figure.name, figure.alt))
        drawn(1)
        return made

    return UNWRITABLE.sub("\ufffd", _templates().get_template(template).render(page=page, prefix=prefix, svg=svg))


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("easybalance_sim.report", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {"style": _style, "csv_link": csv_link, "data_of": _data, "numeric": _numeric}
    found.globals |= {"alone": _alone, "few_rows": FEW_ROWS, "few_columns": FEW_COLUMNS}
    found.filters["shown"] = _shown
    found.tests |= {"figure": _is_figure, "table": _is_table, "facts": _is_facts}
    return found


@cache
def _style(name: str) -> Markup:
    text = (resources.files(__package__) / name).read_text(encoding="utf-8")
    return Markup(re.sub(r"\s*\n\s*", "\n", _light_first(text)).strip())


def _light_first(style: str) -> str:
    """Browsers from before 2024 do not know `light-dark()`: they get the light colours."""
    rule = re.search(r"^\.ebsim-report \{.*?^\}", style, re.DOTALL | re.MULTILINE)
    if rule is None:
        return style
    light = re.sub(r"light-dark\((#\w+), #\w+\)", r"\1", rule[0]).replace("light dark", "light")
    return style.replace(rule[0], f"{light}\n@supports (color: light-dark(red, red)) {{\n{rule[0]}\n}}")


def _data(block: Figure | Table) -> DataTable:
    return block.chart.table() if isinstance(block, Figure) else DataTable(columns=block.columns, rows=block.rows)


def _alone(blocks: Sequence[Block]) -> set[str]:
    """Names of figures with none beside them where two stand in a row."""
    found: set[str] = set()
    for is_figure, run in groupby(blocks, key=_is_figure):
        names = [block.name for block in run]
        if is_figure and len(names) % 2:
            found.add(names[-1])
    return found


def _numeric(rows: Sequence[Sequence[Cell]], count: int) -> list[bool]:
    """Of every column whether all its cells are numbers, with a unit at most, or empty."""
    cells = [[row[column] for row in rows] for column in range(count)]
    return [bool(column) and all(_is_number(cell) for cell in column) for column in cells]


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or cell.strip() in _NOTHING or _NUMBER.fullmatch(cell.strip()) is not None


def _shown(cell: Cell) -> str:
    """Data as people read it: six digits, nothing for no value."""
    return "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def _is_figure(block: Block) -> bool:
    return isinstance(block, Figure)


def _is_table(block: Block) -> bool:
    return isinstance(block, Table)


def _is_facts(block: Block) -> bool:
    return isinstance(block, Facts)
