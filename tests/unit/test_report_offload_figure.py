"""The figure of offloading: its numbers, and that the drawing is the same each time and holds what it should."""

from __future__ import annotations

import re

from easybalance_sim.report.offload_figure import chart_of, svg_of
from tests.offload_reports import example_report


def texts(svg: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", svg)


def test_the_numbers_drawn_are_those_of_the_report() -> None:
    """By hand: x is the share in %, y the hit rate in % and the step over all-resident."""
    report = example_report()
    one, eight = report["batches"]
    assert chart_of(report, one, "hit_rate").table().rows == (
        ("line", "belady", 50.0, 95.0), ("line", "belady", 100.0, 100.0),
        ("line", "lru", 50.0, 90.0), ("line", "lru", 100.0, 100.0),
        ("line", "lru + history", 50.0, 85.0), ("line", "lru + history", 100.0, 100.0),
    )  # fmt: skip
    slower = chart_of(report, eight, "slowdown")
    assert [row[3] for row in slower.table().rows] == [9.0, 1.0, 10.0, 1.0, 11.0, 1.0, 1.1]
    assert [line.dashed for line in slower.lines] == [True, False, False]


def test_only_long_steps_need_a_logarithmic_axis() -> None:
    report = example_report()
    wide = [chart_of(report, batch, key).log for key in ("hit_rate", "slowdown") for batch in report["batches"]]
    assert wide == [False, False, False, True]


def test_the_drawing_is_the_same_bytes_each_time_and_names_axes_curves_and_batch_sizes() -> None:
    svg = svg_of(example_report())
    assert svg == svg_of(example_report()) and "<dc:date>" not in svg
    found = texts(svg)
    for wanted in (
        "experts on the GPU, %",
        "experts that were there, %",
        "mean step, times all-resident",
        "Experts off the GPU: example, int4_g32 over pcie5",
        "belady",
        "lru + history",
        "1 at once",
        "8 at once",
        "10 % longer",
    ):
        assert wanted in found
