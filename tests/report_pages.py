"""A page with every kind of block and chart, made without a run."""

from __future__ import annotations

import numpy as np

from easybalance_sim.arrays import frozen
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.front import Front, Point
from easybalance_sim.report.charts.heat_map import HeatMap, Panel
from easybalance_sim.report.charts.lines import Bound, Event, Line, Lines
from easybalance_sim.report.content import (
    Chart,
    Fact,
    Facts,
    Figure,
    Finding,
    Headline,
    Mood,
    Page,
    Section,
    Table,
)

HOSTILE = """<script>alert('x')</script>"&amp;\x00]]>$\\frac{-->#%é漢"""
LIKE_MARKUP = ("url(#q", 'a id="b', 'x transform="rotate(0 y', 'c; fill: #20242b"', "font-family: d; ")
"""Names that read like what an SVG says inside of tags, short enough to be drawn whole."""
FORMULA = "=HYPERLINK(1)"


def bars(names: tuple[str, ...] = ("contiguous", "eplb", "window_search")) -> Bars:
    """Three candidates with spreads, one without a value."""
    high = tuple((1.1 + place / 10, 1.2 + place / 10) for place in range(len(names)))
    first = Series(name="fit side", values=tuple(1.15 + place / 10 for place in range(len(names))), spread=high)
    second = Series(name="held out", values=(*(1.2 + place / 10 for place in range(len(names) - 1)), None))
    return Bars(
        rows=names, row="candidate", series=(first, second), value="mean imbalance", start=1.0, bound=(1.0, "perfect")
    )


def lines(name: str = "rank") -> Lines:
    """Two lines with a gap, an event and a bound."""
    x = tuple(float(step) for step in range(48))
    y = tuple(1.2 + 0.2 * float(np.sin(step / 5)) for step in range(48))
    gap = tuple(None if step == 20 else 1.05 + 0.1 * float(np.cos(step / 3)) for step in range(48))
    two = (Line(name=f"{name} before", x=x, y=y), Line(name=f"{name} after", x=x, y=gap, steps=True))
    return Lines(
        lines=two, x="step", y="imbalance", events=(Event(x=24.0, name=name),), bounds=(Bound(y=1.0, name="perfect"),)
    )


def front(name: str = "slots") -> Front:
    """Four choices on two curves."""
    points = tuple(
        Point(
            name=f"{name} {place}",
            x=float(place),
            y=2.0 / (1 + place),
            on_front=place != 2,
            taken=place == 1,
            knee=place == 1,
        )
        for place in range(4)
    )
    return Front(
        curves=(("window_search", points), ("eplb", (Point(name="eplb", x=1.5, y=1.6),))),
        x="GB of a GPU",
        y="P99",
        joined=True,
    )


def heat(rows: int = 6, columns: int = 8, panels: tuple[str, ...] = ("before", "after")) -> HeatMap:
    """Loads from 0 to 2, one cell without a value."""
    places = np.add.outer(7919 * np.arange(rows), 104729 * np.arange(columns))
    values = [frozen((places * (number + 1) % 1009) / 504.0) for number in range(len(panels))]
    first = values[0].copy()
    first[0, 0] = np.nan
    values[0] = frozen(first)
    return HeatMap(
        panels=tuple(Panel(title=title, values=value) for title, value in zip(panels, values, strict=True)),
        rows=tuple(range(rows)), columns=tuple(range(columns)), row="layer", column="rank",
        value="load over mean", centre=1.0,
    )  # fmt: skip


def figure(name: str, chart: Chart, title: str = "") -> Figure:
    """With words that say little but are there."""
    return Figure(
        name=name, title=title or f"Chart {name}", alt=f"What {name} shows, in words.",
        conclusion="The plan is better: 1.277 → 1.125 on the mean, and at every layer.", chart=chart,
    )  # fmt: skip


def page(word: str = "window_search", *, mood: Mood = Mood.GOOD, charts: dict[str, Chart] | None = None) -> Page:
    """Every kind of block; `word` stands wherever a name out of a file could."""
    charts = charts or {"heat": heat(), "bars": bars((word, "b", "c")), "lines": lines(word), "front": front(word)}
    table = Table(
        name="load_table", title=f"Load of ranks, {word}", note=word,
        columns=("", word, "window_search (plan)", "change"),
        rows=(("rank imbalance, mean", "1.277", "1.125", "-11.8 %"), (word, word, "–", "+0.2 %")),
    )  # fmt: skip
    facts = Facts(name="memory", title="Memory of a GPU", facts=(Fact(label="staging", value="442.4 kB", note=word),))
    drawn = tuple(figure(name, chart) for name, chart in charts.items())
    sections = (
        Section(
            name="balance",
            title="Balance",
            lead="Is the load even? Yes.",
            blocks=(*drawn, table),
        ),
        Section(name="cost", title="What it costs", lead=word, blocks=(facts,)),
    )
    findings = (
        Finding(criterion="p99_imbalance_drop_min", limit="0.05", observed="0.607", ok=True, note="P99 1.931 → 1.366"),
        Finding(criterion=word, limit="0.1", observed="0.2", ok=False, note=word),
        Finding(criterion="time_gain_over_band_min", limit="0", observed="–", ok=None, note="not demanded"),
    )
    lines_beside = ("inside the band", word)
    headline = Headline(mood=mood, word="ACCEPTED", text="Balance is better, no time is gained.", lines=lines_beside)
    key = (
        Fact(label="P99 imbalance", value="1.931 → 1.366", note="−29.3 %"),
        Fact(label="layer P99", value="102.6 → 102.8 µs"),
        Fact(label=word, value=word),
    )
    made = (
        Fact(label="command", value=f"ebsim plan {word}"),
        Fact(label="trace", value="sha256:" + "0123456789abcdef" * 4),
    )
    return Page(
        title=f"{word} for tinymoe on 8 ranks", subtitle=f"ebsim plan traces/{word}.parquet",
        headline=headline,
        key=key,
        findings=findings, sections=sections,
        provenance=made,
        notes=("uncalibrated: model width", word),
    )  # fmt: skip
