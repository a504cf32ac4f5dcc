"""Charts draw whatever the data are, without a warning, and their data hold every number."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from easybalance_sim.arrays import frozen
from easybalance_sim.report.canvas import inline_svg_of
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.front import Front, Point
from easybalance_sim.report.charts.heat_map import HeatMap, Panel
from easybalance_sim.report.charts.lines import Bound, Event, Line, Lines
from easybalance_sim.report.content import Chart

ODD = st.sampled_from((0.0, -0.0, 1.0, -3.5, 1e-300, 1e-9, 1e9, -1e9, 1e30, float("nan"), float("inf"), float("-inf")))
FINITE = st.sampled_from((0.0, 1.0, -3.5, 1e-9, 1e9, -1e9, 1e30))
WORDS = st.text(max_size=12)
CALM = settings(max_examples=6, deadline=None, derandomize=True, phases=(Phase.generate,))


def check(chart: Chart, numbers: int) -> None:
    """It draws, and its data have a line per number."""
    assert ElementTree.fromstring(inline_svg_of(chart, "x", "words")).get("role") == "img"
    assert len(list(csv.reader(io.StringIO(chart.table().csv(), newline="")))) == 1 + numbers


@CALM
@given(st.data())
def test_bars(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 3))
    values = st.tuples(*[st.none() | ODD] * rows)
    series = tuple(Series(name=data.draw(WORDS), values=data.draw(values)) for _ in range(data.draw(st.integers(1, 9))))
    names = tuple(data.draw(WORDS) for _ in range(rows))
    bound = data.draw(st.none() | st.tuples(FINITE, WORDS))
    chart = Bars(
        rows=names, row="r", series=series, value="v", start=data.draw(st.sampled_from((0.0, 1.0))), bound=bound
    )
    check(chart, rows * len(series) + (bound is not None))


@CALM
@given(st.data())
def test_heat_maps(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 4)))
    cells = st.lists(ODD, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    panels = tuple(
        Panel(title=data.draw(WORDS), values=frozen(np.array(data.draw(cells)).reshape(shape)))
        for _ in range(data.draw(st.integers(1, 2)))
    )
    chart = HeatMap(
        panels=panels, rows=tuple(range(shape[0])), columns=tuple(range(shape[1])), row="r", column="c", value="v",
        centre=data.draw(st.none() | st.sampled_from((0.0, 1.0))),
    )  # fmt: skip
    check(chart, len(panels) * shape[0] * shape[1])


@CALM
@given(st.data())
def test_lines(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 4), max_size=10))
    lines = tuple(
        Line(
            name=data.draw(WORDS), x=tuple(map(float, range(length))), steps=data.draw(st.booleans()),
            y=tuple(data.draw(st.none() | ODD) for _ in range(length)),
        )
        for length in lengths
    )  # fmt: skip
    events = tuple(Event(x=float(place), name=data.draw(WORDS)) for place in range(data.draw(st.integers(0, 9))))
    bounds = tuple(Bound(y=y, name=data.draw(WORDS)) for y in data.draw(st.lists(FINITE, max_size=2)))
    from_where = data.draw(st.none() | FINITE)
    chart = Lines(lines=lines, x="x", y="y", events=events, bounds=bounds, y_from=from_where)
    check(chart, sum(lengths) + len(events) + len(bounds))


@CALM
@given(st.data())
def test_fronts(data: st.DataObject) -> None:
    flags = st.booleans()
    point = st.builds(Point, name=WORDS, x=FINITE, y=FINITE, on_front=flags, taken=flags, knee=flags)
    curves = tuple((data.draw(WORDS), tuple(data.draw(st.lists(point, max_size=3)))) for _ in range(2))
    chart = Front(curves=curves, x="x", y="y", joined=data.draw(st.booleans()))
    check(chart, sum(len(points) for _, points in curves))
