"""Charts become the same bytes in every process and whatever a user has configured, in the colours of the page."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from easybalance_sim.report.canvas import (
    LONGEST,
    LONGEST_OF_TWO,
    THEME,
    inline_svg_of,
    png_of,
    short,
    svg_of,
)
from easybalance_sim.report.charts.shares import Part, Shares
from easybalance_sim.report.content import Chart
from tests.ebsim_process import PATIENCE_S, ROOT, environment
from tests.report_pages import HOSTILE, LIKE_MARKUP, bars, front, heat, lines

CHARTS: dict[str, Chart] = {"heat": heat(), "bars": bars(), "lines": lines(), "front": front()}
DIGESTS = """
import hashlib, sys
from easybalance_sim.report.canvas import inline_svg_of, png_of, svg_of
from tests.report_pages import heat, lines
for chart in (heat(2, 3), lines()):
    made = svg_of(chart, "x").encode() + inline_svg_of(chart, "x", "words").encode() + png_of(chart, "x")
    print(hashlib.sha256(made).hexdigest())
"""


def test_two_processes_draw_the_same_bytes() -> None:
    other = subprocess.run(
        [sys.executable, "-c", DIGESTS], cwd=ROOT, env=environment({"PYTHONHASHSEED": "3"}), capture_output=True,
        text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(DIGESTS, {})
    assert here.getvalue() == other.stdout and len(set(other.stdout.split())) == 2


def test_a_users_own_settings_change_nothing() -> None:
    plain = svg_of(bars(), "x"), png_of(bars(), "x")
    with mpl.rc_context({"font.size": 20, "axes.spines.top": True, "svg.fonttype": "path", "savefig.dpi": 30}):
        assert (svg_of(bars(), "x"), png_of(bars(), "x")) == plain
        assert mpl.rcParams["font.size"] == 20


@pytest.mark.parametrize("name", CHARTS)
def test_inside_a_page_a_chart_is_one_image_in_the_pages_colours(name: str) -> None:
    text = inline_svg_of(CHARTS[name], name, 'Say "this" & <that>')
    root = ElementTree.fromstring(text)
    assert (root.get("role"), root.get("aria-label")) == ("img", 'Say "this" & <that>')
    assert root.get("viewBox") and root.get("width") is None
    assert "var(--ink)" in text and not [colour for colour in THEME if colour in text]
    assert "<style" not in text and "font-family" not in text
    ids = [one.get("id") for one in root.iter() if one.get("id")]
    assert ids and len(ids) == len(set(ids)) and all(str(one).startswith(f"{name}-") for one in ids)
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) == set(ids)


def test_a_file_of_its_own_has_a_size_and_no_variables() -> None:
    text = svg_of(lines(HOSTILE), "x")
    root = ElementTree.fromstring(text)
    assert root.get("width") == "360pt"
    assert "var(" not in text and "Date" not in text
    assert any("<script>" in (one.text or "") for one in root.iter("{http://www.w3.org/2000/svg}text"))


def test_names_that_read_like_markup_are_drawn_as_they_are() -> None:
    for text in (svg_of(bars(LIKE_MARKUP), "x"), inline_svg_of(bars(LIKE_MARKUP), "x", "bars")):
        root = ElementTree.fromstring(text)
        assert set(LIKE_MARKUP) <= {one.text for one in root.iter() if one.text}
        ids = {one.get("id") for one in root.iter() if one.get("id")}
        assert ids and ids == set(re.findall(r'(?:href="#|url\(#)(x-\d+)', text))


def test_numbers_near_the_largest_float_are_drawn_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    whole = Shares(rows=("a",), row="plan", parts=(Part(name="work", values=(1e308,)),), value="s")
    assert "work" in svg_of(whole, "x") and not recwarn.list


def test_a_png_has_two_hundred_dots_an_inch() -> None:
    made = png_of(front(), "x")
    assert made.startswith(b"\x89PNG") and int.from_bytes(made[16:20]) == 1000


def test_long_names_are_shortened_in_drawings_not_in_data() -> None:
    name = "n" * 80
    assert short(name) == "n" * (LONGEST - 1) + "…" and short("n" * LONGEST) == "n" * LONGEST
    text = svg_of(lines(name), "x")
    assert "n" * (LONGEST_OF_TWO - 1) + "…" in text and name not in text
    assert name in lines(name).table().csv()
