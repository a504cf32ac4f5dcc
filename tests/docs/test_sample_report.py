"""The committed report of the sample is the one that the command makes now."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from urllib.parse import unquote

from tests.docs.sample_report import PAGE, PICTURE, make_page

SMALLEST, LARGEST = 100_000, 3 * 2**20
LARGEST_PICTURE = 120_000


def test_the_committed_page_is_what_the_command_makes(tmp_path: Path) -> None:
    """Made anew by `python -m tests.docs.sample_report`. Another processor may round the last digits of data otherwise,
    and other versions of matplotlib draw otherwise: drawings are compared where data and versions are the same."""
    committed, made = PAGE.read_text(encoding="utf-8"), make_page(tmp_path)
    assert _words(committed) == _words(made)
    old, new = _data(committed), _data(made)
    assert len(old) > 10 and list(old) == list(new)
    for name, table in old.items():
        assert len(table) == len(new[name]) and all(map(_alike, table, new[name])), name
    if old == new and _versions(committed) == _versions(made):
        assert _drawings(committed) == _drawings(made)


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
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


def _alike(one: list[str], other: list[str]) -> bool:
    return len(one) == len(other) and all(a == b or _close(a, b) for a, b in zip(one, other, strict=True))


def _close(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-5)
    except ValueError:
        return False
