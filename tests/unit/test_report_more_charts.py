"""Charts of shares, spans, panels, sheets and prices: their data, and that odd ones can be drawn."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from easybalance_sim.report.canvas import inline_svg_of, svg_of
from easybalance_sim.report.charts.lines import Event, Line, Lines
from easybalance_sim.report.charts.panels import Panels
from easybalance_sim.report.charts.prices import Mark, Prices
from easybalance_sim.report.charts.shares import Part, Shares
from easybalance_sim.report.charts.sheet import Sheet
from easybalance_sim.report.charts.spans import Span, Spans
from easybalance_sim.report.choosing import Choice, knee, marked
from easybalance_sim.report.content import Chart

SHARES = Shares(
    rows=("before", "after"), row="plan", value="s",
    parts=(Part(name="work", values=(3.0, 2.0)), Part(name="idle", values=(0.0, 0.5))),
)  # fmt: skip
SPANS = Spans(
    spans=(Span(name="5 slots", low=-1.0, middle=0.5, high=2.0), Span(name="6 slots", low=1.0, middle=1.0, high=1.0)),
    row="slots", value="saved", neutral=(0.0, "no difference"),
)  # fmt: skip


def lines(name: str) -> Lines:
    """Two lines with an event."""
    found = (Line(name="old", x=(0.0, 1.0), y=(2.0, None)), Line(name="new", x=(0.0, 1.0), y=(1.0, 1.5)))
    return Lines(lines=found, x="seconds", y=name, events=(Event(x=0.5, name="burst"),))


PANELS = Panels(panels=(lines("waiting"), lines("running")))
PRICES = Prices(
    marks=(
        Mark(name="plan", imbalance=1.4, loss=(0.0, 0.0), on_front=True, kind="lossless", slots=8),
        Mark(name="cap", imbalance=1.1, loss=(-1.0, 5.0), on_front=True, kind="lossy", slots=8, knee=True),
        Mark(name="chance", imbalance=1.0, loss=(0.0, 0.0), on_front=False, kind="floor", slots=9),
    ),
    named=frozenset({"plan", "cap"}),
)  # fmt: skip
SHEET = Sheet(title="All of it", rows=((("left", SPANS), ("right", SHARES)),))
CHARTS: dict[str, Chart] = {"shares": SHARES, "spans": SPANS, "panels": PANELS, "prices": PRICES, "sheet": SHEET}


def texts(chart: Chart) -> list[str]:
    return re.findall(r">([^<>]+)</text>", svg_of(chart, "a"))


def test_their_data_are_all_that_is_drawn() -> None:
    assert SHARES.table().rows == (
        ("before", "work", 3.0), ("after", "work", 2.0), ("before", "idle", 0.0), ("after", "idle", 0.5),
    )  # fmt: skip
    assert SPANS.table().rows == (
        ("5 slots", -1.0, 0.5, 2.0),
        ("6 slots", 1.0, 1.0, 1.0),
        ("no difference", None, 0.0, None),
    )
    assert PANELS.table().rows[:2] == (("waiting", "line", "old", 0.0, 2.0), ("waiting", "line", "old", 1.0, None))
    assert [row[:3] for row in PANELS.table().rows if row[1] == "event"] == [
        ("waiting", "event", "burst"), ("running", "event", "burst"),
    ]  # fmt: skip
    assert PRICES.table().rows[1] == ("cap", "lossy", 8, -1.0, 5.0, 1.1, 1, 1)
    assert SHEET.table().rows[:2] == (("left", 0, "slots", "5 slots"), ("left", 0, "low", -1.0))
    assert len(SHEET.table().rows) == 3 * 4 + 4 * 3


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_the_same_bytes_each_time(name: str) -> None:
    assert inline_svg_of(CHARTS[name], "a", "") == inline_svg_of(CHARTS[name], "a", "")


def test_parts_have_their_number_where_there_is_room() -> None:
    assert {"3.0", "2.0", "0.5", "work", "idle"} <= set(texts(SHARES)) and "0.0" not in texts(SHARES)[4:]


def test_events_of_panels_are_named_once() -> None:
    found = texts(PANELS)
    assert found.count("burst") == 1 and found.count("seconds") == 1 and {"waiting", "running"} <= set(found)


def test_names_of_events_do_not_lie_on_one_another() -> None:
    """Near ones stand side by side, names that come again stand once, each mark is there."""
    found = (Event(x=5.0, name="a"), Event(x=4.9, name="b"), Event(x=5.1, name="b"), Event(x=9.0, name="b"))
    chart = Lines(lines=(Line(name="", x=(0.0, 10.0), y=(1.0, 2.0)),), x="s", y="v", events=found)
    labels = re.findall(r"translate\(([\d.]+) [^<>]*>([ab])</text>", svg_of(chart, "a"))
    assert [name for _, name in labels] == ["b", "a", "b"]
    places = [float(x) for x, _ in labels]
    assert min(after - before for before, after in pairwise(places)) > 8
    assert svg_of(chart, "a").count("stroke-dasharray: 0.9") == len(found)


def test_names_of_prices_stand_below_by_number() -> None:
    assert [text.split()[-1] for text in texts(PRICES) if re.match(r"\d +[a-z]", text)] == ["plan", "cap"]
    nameless = Prices(marks=PRICES.marks[:1], named=frozenset())
    assert nameless.size[1] < PRICES.size[1] and "lossless" in texts(nameless)


def test_a_sheet_has_its_title_and_those_of_its_charts() -> None:
    assert {"All of it", "left", "right", "no difference"} <= set(texts(SHEET))
    assert SHEET.size[0] == 2 * SPANS.size[0]


def test_choices_are_marked_by_price_and_worth() -> None:
    """By hand: b costs more than a and gives less; d gives hardly more than c for twice the price."""
    found = marked(
        [
            Choice(name=name, price=price, worth=worth)
            for name, price, worth in (("d", 4.0, 10.1), ("a", 0.0, 1.0), ("b", 1.0, 0.5), ("c", 2.0, 10.0))
        ],
        "c",
    )
    assert [(one.name, one.on_front, one.taken, one.knee) for one in found] == [
        ("a", True, False, False), ("b", False, False, False), ("c", True, True, True), ("d", True, False, False),
    ]  # fmt: skip
    assert not any(one.knee for one in marked([Choice(name="only", price=0.0, worth=0.0)], "only"))


def test_the_knee_is_where_more_worth_begins_to_cost_much_more() -> None:
    assert knee([(0.0, -2.0), (1.0, -1.1), (10.0, -1.0)]) == (1.0, -1.1)
    assert knee([(0.0, -2.0), (5.0, -1.5), (10.0, -1.0)]) is None
    assert knee([(0.0, -2.0), (9.0, -1.9), (10.0, -1.0)]) is None
    assert knee([(0.0, -2.0), (10.0, -1.0)]) is None and knee([]) is None


def test_choices_without_a_bend_have_no_knee() -> None:
    found = marked([Choice(name=str(price), price=float(price), worth=float(price)) for price in range(3)], "")
    assert all(one.on_front for one in found) and not any(one.knee for one in found)
