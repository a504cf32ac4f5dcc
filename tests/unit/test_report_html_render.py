"""Pages as HTML: nothing from outside gets in as markup, everything has its place, nothing is fetched."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from easybalance_sim.report.content import Fact, Mood, Page, Table
from easybalance_sim.report.html.render import csv_link, fragment_of, html_of
from tests.report_pages import FORMULA, HOSTILE, bars, figure, heat, page

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Parsed(HTMLParser):
    """Tags with their attributes, and all text; tags must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of all tags of that name."""
        return [attributes for one, attributes in self.tags if one == tag]


@pytest.fixture(scope="module")
def plain() -> str:
    return html_of(page())


@pytest.fixture(scope="module")
def hostile() -> str:
    return html_of(page(HOSTILE))


def test_the_verdict_is_said_first(plain: str) -> None:
    parsed = Parsed(plain)
    order = ["ACCEPTED", "P99 imbalance", "Contents", "Findings", "Balance", "What it costs", "Notes", "Provenance"]
    places = [plain.index(f">{word}" if word != "Contents" else word, plain.index("<body")) for word in order[:3]]
    places += [plain.index(f">{word}", plain.index("<main")) for word in order[3:]]
    assert places == sorted(places)
    assert parsed.named("html")[0]["lang"] == "en" and "<title>ACCEPTED · window_search" in plain


def test_results_are_words(plain: str) -> None:
    marks = re.findall(r'<span class="mark">([^<]+)</span>', plain)
    assert marks == ["ok", "NO", "not judged"]


@pytest.mark.parametrize("mood", Mood)
def test_every_mood_has_its_class(mood: Mood) -> None:
    told: list[int] = []
    made = html_of(page(mood=mood, charts={"bars": bars()}), told.append)
    assert told == [1]
    assert f'class="verdict {mood.value}"' in made and f".verdict.{mood.value} " in made


def test_same_tags_whatever_the_names_are(plain: str, hostile: str) -> None:
    """No name out of a file becomes markup, in the page or inside a drawing."""
    shape = [[tag for tag, _ in Parsed(text).tags if tag not in ("path", "g", "use")] for text in (plain, hostile)]
    assert "script" not in shape[1]
    assert {tag: shape[0].count(tag) for tag in shape[0]} == {tag: shape[1].count(tag) for tag in shape[1]}
    assert hostile.count("&lt;script&gt;") > 12
    assert "\x00" not in hostile


def test_nothing_is_fetched(hostile: str) -> None:
    parsed = Parsed(hostile)
    addresses = [value for _, found in parsed.tags for name, value in found.items() if name.endswith(("href", "src"))]
    assert addresses and all(str(one).startswith(("#", "data:")) for one in addresses)
    assert not re.search(r"@import|url\((?!#)", hostile)
    assert not [name for _, found in parsed.tags for name in found if name.startswith("on")]


def test_ids_are_unique_and_are_what_links_lead_to() -> None:
    parsed = Parsed(html_of(page(charts={f"map_{number}": heat(2, 3) for number in range(4)})))
    ids = [found["id"] for _, found in parsed.tags if "id" in found]
    assert len(ids) == len(set(ids))
    assert {str(found["href"])[1:] for found in parsed.named("a") if str(found["href"]).startswith("#")} <= set(ids)


def test_data_go_into_links_unharmed() -> None:
    table = figure("x", bars((FORMULA, HOSTILE, "a b#c%d"))).chart.table()
    link = csv_link(table)
    assert unquote(link.partition(",")[2]) == table.csv()
    assert not set(link) & set(' "<>#\n\x00é')
    assert f"'{FORMULA}" in unquote(link)
    assert link.replace("'", "&#39;") in html_of(page(charts={"x": bars((FORMULA, HOSTILE, "a b#c%d"))}))


def test_small_data_are_a_table_large_ones_a_link_only(plain: str) -> None:
    assert re.findall(r"<summary>Show the data of “([^”]+)”", plain) == ["Chart bars", "Chart front"]
    links = re.findall(r'download="([^"]+)"', plain)
    assert links == ["heat.csv", "bars.csv", "lines.csv", "front.csv", "load_table.csv"]


def test_numbers_stand_to_the_right(plain: str) -> None:
    head = re.search(r"<thead><tr>(.*?)</tr>", plain[plain.index('id="load_table"') :], re.DOTALL)
    assert head is not None
    cells = re.findall(r"<t[hd][^>]*>", head[1])
    assert cells == [
        "<td>", '<th scope="col">', '<th scope="col" class="number">', '<th scope="col" class="number">'
    ]  # fmt: skip


def test_an_empty_page_has_no_empty_parts() -> None:
    whole = page()
    bare = Page(
        title="t", subtitle="s", headline=whole.headline, key=(), findings=(), sections=(), provenance=(),
    )  # fmt: skip
    text = Parsed(html_of(bare)).text
    assert not [word for word in ("Findings", "Notes of the run", "Provenance") if word in text.partition("ebsim ·")[2]]


def test_a_table_without_rows_is_a_head() -> None:
    assert isinstance(page().sections[0].blocks[-1], Table)
    empty = Table(name="none", title="None", columns=("a", "b"), rows=())
    section = page().sections[0].__class__(name="s", title="S", lead="", blocks=(empty,))
    whole = page()
    made = Page(
        title="t", subtitle="s", headline=whole.headline, key=(), findings=(), sections=(section,), provenance=(),
    )  # fmt: skip
    assert '<th scope="col">a</th>' in html_of(made)


def test_a_fragment_is_one_element_without_contents_and_provenance() -> None:
    made = fragment_of(page(charts={"bars": bars()}))
    parsed = Parsed(made)
    assert made.startswith('<div class="ebsim-report fragment">') and made.rstrip().endswith("</div>")
    assert not {tag for tag, _ in parsed.tags} & {"html", "body", "nav", "main", "footer", "header", "h1", "script"}
    assert "sha256:" not in made and "ACCEPTED" in made
    rules = re.findall(r"(?m)^([^@{}/\n-][^{}\n]*)\{", made[made.index("<style>") + 7 : made.index("</style>")])
    assert rules and all(".ebsim-report" in one for rule in rules for one in re.split(r",(?![^()]*\))", rule))


def test_browsers_that_do_not_know_dark_colours_get_the_light_ones(plain: str) -> None:
    old, _, new = plain.partition("@supports (color: light-dark(red, red)) {")
    known = dict(re.findall(r"(--\w+(?:-\w+)?): (#\w+);", old))
    both = re.findall(r"(--\w+(?:-\w+)?): light-dark\((#\w+), #\w+\);", new)
    assert len(both) > 20 and dict(both) == known
    assert "light-dark(" not in old


def test_fragments_of_different_pages_share_no_ids() -> None:
    made = [fragment_of(page(charts={"bars": bars((word, "b"))})) for word in ("eplb", "window_search")]
    one, other = (set(re.findall(r' id="([^"]+)"', text)) for text in made)
    assert one and not one & other


def test_text_that_utf8_cannot_hold_is_replaced() -> None:
    """As of a command line with bytes that are no text."""
    whole = page(charts={"bars": bars()})
    odd = Page(
        title="a\udcff\x07b", subtitle="s", headline=whole.headline, key=(Fact(label="l", value="\udc80"),),
        findings=(), sections=(), provenance=(),
    )  # fmt: skip
    assert "a\ufffd\ufffdb" in html_of(odd).encode().decode()
