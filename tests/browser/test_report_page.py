"""A report in a real browser: it asks for nothing, says nothing to the console, and everybody can read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser

from easybalance_sim.report.content import Page
from easybalance_sim.report.html.render import fragment_of, html_of
from tests.browser_sessions import Opened, Scheme, chromium, opened
from tests.ebsim_process import ROOT
from tests.golden.report.documents.make_golden import documents
from tests.golden.report.documents.make_golden import page as page_of_document
from tests.report_pages import bars, heat, page

LARGEST = 3 * 2**20
SAMPLE = ROOT / "reports" / "sample_report.html"
"""What `ebsim plan --report` makes of the sample; another test sees to it that it is what it makes now."""
VIEWS: tuple[tuple[int, Scheme], ...] = (
    (1280, "light"), (1280, "dark"), (400, "light"), (400, "dark"), (320, "light"),
)  # fmt: skip
TEXTS = ("ink", "soft", "link", "good", "bad", "unsure", "neutral")
MARKS = tuple(f"s{number}" for number in range(1, 9))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report() -> Page:
    return page()


@pytest.fixture(scope="module")
def synthetic(report: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all kinds of blocks and charts, short."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html_of(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sample(browser: Browser) -> Iterator[Opened]:
    with opened(browser, SAMPLE) as found:
        yield found


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def view(request: pytest.FixtureRequest, sample: Opened) -> Opened:
    width, scheme = request.param
    sample.look(width, scheme)
    return sample


def test_every_view_fits_and_axe_finds_nothing(view: Opened, request: pytest.FixtureRequest) -> None:
    view.keep_screenshot(f"report-{request.node.callspec.id}")
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert view.axe() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_and_marks_stand_out(sample: Opened, scheme: Scheme) -> None:
    sample.look(1280, scheme)
    colours = sample.page.evaluate(COLOURS, [*TEXTS, *MARKS, "paper", "ground"])
    for behind in ("paper", "ground"):
        assert {name for name in TEXTS if contrast(colours[name], colours[behind]) < 4.5} == set()
    assert {name for name in MARKS if contrast(colours[name], colours["paper"]) < 3} == set()


COLOURS = """names => {
  const probe = document.body.appendChild(document.createElement('i'));
  const found = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(Number);
  }
  probe.remove();
  return found;
}"""


def contrast(one: list[float], other: list[float]) -> float:
    """Of two sRGB colours, as WCAG 2 defines it."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: list[float]) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (one / 255 for one in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_image_has_words_and_every_figure_data(sample: Opened) -> None:
    names = sample.page.eval_on_selector_all("svg, img, [role=img]", "all => all.map(one => one.ariaLabel || one.alt)")
    assert len(names) > 10 and all(len(name) > 20 for name in names)
    without = "all => all.filter(one => !one.querySelector('a[download]')).map(one => one.id)"
    assert sample.page.eval_on_selector_all("figure", without) == []
    assert sample.page.locator("figure").count() == len(names)


def test_on_paper_all_is_open_and_light(sample: Opened) -> None:
    sample.look(1280, "dark", media="print")
    assert sample.page.is_hidden("nav")
    assert sample.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    heights = sample.page.eval_on_selector_all(
        "details table", "all => all.map(one => one.getBoundingClientRect().height)"
    )
    assert heights and min(heights) > 20
    sample.keep_screenshot("report-print")
    made = sample.page.pdf(prefer_css_page_size=True)
    assert made.startswith(b"%PDF") and len(made) > 20_000


def test_it_asked_for_nothing_and_said_nothing(sample: Opened) -> None:
    """In all that was done with it here, and when it is opened anew."""
    sample.page.reload()
    assert set(sample.requests) == {SAMPLE.as_uri()}
    assert sample.said == []


@pytest.fixture(scope="module")
def desk(browser: Browser, synthetic: Path) -> Iterator[Opened]:
    with opened(browser, synthetic) as found:
        yield found


def test_every_image_has_words(desk: Opened, report: Page) -> None:
    names = desk.page.evaluate(
        "[...document.querySelectorAll('svg, img, [role=img]')].map(one => one.getAttribute('aria-label') || one.alt)"
    )
    assert names == [figure.alt for figure in report.figures()]


def test_findings_fit_a_phone(desk: Opened) -> None:
    for width in (400, 320):
        desk.look(width, "light")
        fits = "all => all.map(one => one.parentElement.scrollWidth <= one.parentElement.clientWidth)"
        assert desk.page.eval_on_selector_all(".findings", fits) == [True]
    desk.keep_screenshot("findings")
    assert desk.axe() == []
    desk.look(1280, "light")


def test_the_links_hold_the_data(desk: Opened, report: Page) -> None:
    links = desk.page.eval_on_selector_all("a[download]", "all => all.map(one => [one.download, one.href])")
    found = {name: unquote(address.partition(",")[2]) for name, address in links}
    for figure in report.figures():
        assert found[f"{figure.name}.csv"] == figure.chart.table().csv()
    assert all(len(list(csv.reader(io.StringIO(text)))) > 1 for text in found.values())


def test_a_click_downloads_a_file(desk: Opened, report: Page, tmp_path: Path) -> None:
    with desk.page.expect_download() as waiting:
        desk.page.click("a[download]")
    waiting.value.save_as(tmp_path / waiting.value.suggested_filename)
    first = report.figures()[0]
    assert (tmp_path / f"{first.name}.csv").read_text(encoding="utf-8") == first.chart.table().csv()


def test_it_works_without_scripts_from_the_keyboard(browser: Browser, synthetic: Path, desk: Opened) -> None:
    with opened(browser, synthetic, scripts=False) as silent:
        assert silent.page.locator("script").count() == 0
        assert silent.page.text_content("main") == desk.page.text_content("main")
        silent.page.keyboard.press("Tab")
        assert silent.page.evaluate("document.activeElement.className") == "skip"
        silent.page.keyboard.press("Enter")
        assert silent.page.url.endswith("#main")


def test_a_model_of_deepseek_size_stays_small() -> None:
    size = len(html_of(page(charts={f"map_{number}": heat(58, 256) for number in range(3)})).encode())
    assert 200_000 < size < LARGEST


def test_two_fragments_in_one_document(browser: Browser, tmp_path: Path) -> None:
    """In a notebook that is dark while the system is light."""
    path = tmp_path / "notebook.html"
    both = "".join(fragment_of(page(charts={"bars": bars((name, "b"))})) for name in ("a", "c"))
    path.write_text(
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Notebook</title>'
        f'<body class="vscode-dark"><main><h1>Notebook</h1><h2>Cells</h2>{both}</main></body></html>',
        encoding="utf-8",
    )
    with opened(browser, path) as found:
        found.keep_screenshot("notebook")
        ids: list[Any] = found.page.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
        assert len(ids) == len(set(ids))
        assert found.axe() == []
        assert contrast(*found.page.evaluate(PAINTED)) > 4.5
        assert found.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"


PAINTED = """(() => {
  const style = getComputedStyle(document.querySelector('.ebsim-report'));
  const dark = [style.color, style.backgroundColor].map(one => one.match(/[0-9.]+/g).slice(0, 3).map(Number));
  return dark;
})()"""


@pytest.mark.slow
@pytest.mark.parametrize("name", documents())
def test_every_kind_of_page(browser: Browser, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.html"
    path.write_text(html_of(page_of_document(name)), encoding="utf-8")
    with opened(browser, path) as found:
        for width, scheme in VIEWS:
            found.look(width, scheme)
            assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        found.keep_screenshot(name)
        assert found.axe() == [] and found.said == [] and found.requests == [path.as_uri()]
