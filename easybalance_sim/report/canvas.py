"""Charts as SVG text or PNG bytes: the same bytes for the same chart, in the page's colours or in fixed ones."""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from easybalance_sim.report.content import Chart

INK, FAINT, PAPER = "#20242b", "#c9ced6", "#fefefe"
SERIES = ("#1f5fa8", "#c8541d", "#2c8a57", "#8d4aa3", "#a8861f", "#5b6470", "#c22f5c", "#2b9bb3")
THEME = {INK: "--ink", FAINT: "--faint", PAPER: "--paper", **{one: f"--s{n}" for n, one in enumerate(SERIES, 1)}}
"""The colours that charts draw with and the CSS variables that stand for them on a page."""

WIDTH = 5.0
"""Inches of every chart: 360 points, so that the letters keep their size on a phone."""

TAG = re.compile(r"<[^<>]*>")
"""Names from data stand between tags; inside of one there is only what matplotlib writes, `<` and `>` never."""

UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What neither XML nor UTF-8 can hold; names from recordings and command lines may."""

_HARMLESS = "Glyph .* missing from font|No artists with labels found|constrained_layout not applied"
"""Warnings about names that are odd or too many; the browser has its own fonts, and what is drawn is drawn."""

BEHIND_LETTERS = {"boxstyle": "square,pad=0.1", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.75}
"""Letters on a line stay readable."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}


LONGEST, LONGEST_OF_TWO, LONGEST_IN_A_COLUMN = 36, 28, 66
"""Letters of a name inside a chart, of names that stand beside each other in a legend, and of a list of names below
one another; data name all in full."""


def short(name: str, most: int = LONGEST) -> str:
    """As charts write it: long names would leave no place for the drawing."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def svg_of(chart: Chart, name: str) -> str:
    """The chart as a file of its own, in fixed colours on white. name: makes the ids inside it differ from others'."""
    return _svg_text(chart, name, facecolor="white")


def inline_svg_of(chart: Chart, name: str, alt: str) -> str:
    """The chart as an `<svg>` element for a page: one image with the text `alt` for those who cannot see it, colours
    are CSS variables (`THEME`), ids begin with `name`, no size but the view box."""
    text = _svg_text(chart, name, facecolor="none")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<style.*?</style>\s*|<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r">\s+<", "><", TAG.sub(lambda tag: _shortened(tag[0]), text))
    opening = text[: text.index(">") + 1]
    box = re.search(r'viewBox="[^"]+"', opening)
    spoken = f'role="img" aria-label="{escape(alt, quote=True)}"'
    plain = f'<svg {box.group(0) if box else ""} xmlns:xlink="http://www.w3.org/1999/xlink" {spoken}>'
    return plain + text[len(opening) :].rstrip()


def png_of(chart: Chart, name: str) -> bytes:
    """The chart as a PNG of 200 dots per inch on white."""
    return _saved(chart, name, "png", facecolor="white")


def _svg_text(chart: Chart, name: str, facecolor: str) -> str:
    text = UNWRITABLE.sub("\ufffd", _saved(chart, name, "svg", facecolor).decode())
    return _renumbered(text, name)


def _renumbered(text: str, name: str) -> str:
    """Ids that something refers to become `name`-1, `name`-2, … where they are first met; the others go.

    matplotlib makes them from coordinates whose last bits, unseen, differ between runs.
    """
    used = (found for tag in TAG.findall(text) for found in re.findall(r'(?:href="#|url\(#)([^")]+)', tag))
    numbers = {one: f"{name}-{number}" for number, one in enumerate(dict.fromkeys(used), 1)}

    def renumbered(tag: re.Match[str]) -> str:
        named = re.sub(r' id="([^"]+)"', lambda at: f' id="{numbers[at[1]]}"' if at[1] in numbers else "", tag[0])
        return re.sub(r'(href="#|url\(#)([^")]+)', lambda at: f"{at[1]}{numbers[at[2]]}", named)

    return TAG.sub(renumbered, text)


def _shortened(tag: str) -> str:
    """Places to a hundredth of a point, colours and letters of the page, nothing that nobody sees or the page's style
    says (the colour of letters, class `tick`)."""
    for colour, variable in THEME.items():
        tag = tag.replace(colour, f"var({variable})")
    tag = re.sub(r' (?:d|x|y)="[^"]+"', lambda found: re.sub(r"(\.\d\d)\d+|\s+$|\n", r"\1", found[0]), tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"|font-family: [^;"]+; ', "", tag)
    if tag.startswith("<text"):
        tag = tag.replace('; fill: var(--ink)"', '"')
    return tag.replace('style="fill: var(--ink); stroke: var(--ink); stroke-width: 0.8"', 'class="tick"')


def _saved(chart: Chart, name: str, kind: Literal["svg", "png"], facecolor: str) -> bytes:
    out = io.BytesIO()
    about: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    # What a user's own matplotlibrc says must not change a report; of axes near the largest float, ticks overflow.
    with mpl.rc_context(), warnings.catch_warnings(), np.errstate(all="ignore"):
        mpl.rcdefaults()
        mpl.rcParams.update({**STYLE, "svg.hashsalt": name})
        warnings.filterwarnings("ignore", message=_HARMLESS)
        drawing = Figure(figsize=chart.size, layout="constrained")
        chart.draw(drawing)
        _tidy(drawing)
        drawing.savefig(out, format=kind, metadata=about, facecolor=facecolor, dpi=200)
    return out.getvalue()


def _tidy(drawing: Figure) -> None:
    """Names from recordings may be of any length."""
    for text in (text for axes in drawing.axes for text in axes.texts):
        text.set_text(short(text.get_text()))
    for legend in drawing.legends:
        names = legend.get_texts()
        in_one_column = len(names) > 1 and getattr(legend, "_ncols", 2) == 1
        most = LONGEST_IN_A_COLUMN if in_one_column else LONGEST_OF_TWO if len(names) > 1 else LONGEST
        for text in names:
            text.set_text(short(text.get_text(), most))
