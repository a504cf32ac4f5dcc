"""The committed report of the sample is the one that the command makes now."""

from __future__ import annotations

import csv
import importlib
import io
import math
import re
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs import sample_report
from tests.docs.sample_report import PAGE, PICTURE, make_page

SMALLEST, LARGEST = 100_000, 3 * 2**20
LARGEST_PICTURE = 120_000
PLACES = re.compile(r' (?:d|x|y|width|height|transform|xlink:href)="(?!#)[^"]*"')


def test_the_committed_page_is_what_the_command_makes(tmp_path: Path) -> None:
    """Made anew by `python -m tests.docs.sample_report`. Another processor may round the last digits of data otherwise,
    and other versions of matplotlib draw otherwise: drawings are compared, without places and pixels, where data and
    versions are the same."""
    committed, made = PAGE.read_text(encoding="utf-8"), make_page(tmp_path)
    assert _words(committed) == _words(made)
    old, new = _data(committed), _data(made)
    assert len(old) > 10 and list(old) == list(new)
    for name, table in old.items():
        assert len(table) == len(new[name]) and all(map(_alike, table, new[name])), name
    if old == new and _versions(committed) == _versions(made):
        assert _drawings(committed) == _drawings(made)


def test_drawings_are_the_same_whatever_library_placed_them() -> None:
    drawing = '<svg viewBox="0 0 9 9"><path d="M 1 2" style="fill: red"/><image x="1" xlink:href="data:a"/>%s</svg>'
    elsewhere = drawing.replace("M 1 2", "M 1.01 2").replace("data:a", "data:b").replace('x="1"', 'x="2"')
    assert _drawings(drawing % "word") == _drawings(elsewhere % "word")
    for other in (drawing % "words", drawing.replace("red", "blue") % "word", drawing % '<use xlink:href="#a"/>word'):
        assert _drawings(drawing % "word") != _drawings(other)


def test_the_page_is_made_without_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tests.browser_sessions", None)
    assert importlib.reload(sample_report).make_page


def test_page_and_picture_are_small() -> None:
    assert SMALLEST < PAGE.stat().st_size < LARGEST
    picture = PICTURE.read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) <= LARGEST_PICTURE


def _words(page: str) -> str:
    """All that is read, without what is drawn and what depends on the machine."""
    page = re.sub(
        r"<style>.*?</style>|<svg.*?</svg>|<details>.*?</details>|fingerprint [0-9a-f]+", "", page, flags=re.DOTALL
    )
    return re.sub(r"<[^>]+>|\s+", " ", page.replace(_versions(page), ""))


def _versions(page: str) -> str:
    found = re.search(r"<dt>versions</dt>\s*<dd>([^<]+)", page)
    assert found is not None
    return found[1]


def _data(page: str) -> dict[str, list[list[str]]]:
    links = re.findall(r'download="([^"]+)" href="data:text/csv;charset=utf-8,([^"]*)"', page)
    return {name: list(csv.reader(io.StringIO(unquote(text.replace("&#39;", "'"))))) for name, text in links}


def _drawings(page: str) -> list[str]:
    """What is drawn in which order, in which colours, and all words: without places and pixels, which other builds of
    freetype, kiwisolver, zlib and Pillow make otherwise."""
    return [PLACES.sub("", drawing) for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def _alike(one: list[str], other: list[str]) -> bool:
    return len(one) == len(other) and all(a == b or _close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-5)
    except ValueError:
        return False
