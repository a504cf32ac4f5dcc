"""The figure of a sweep: its numbers, and that the drawing is the same each time and holds what it should."""

from __future__ import annotations

import re

import pytest

from easybalance_sim.report.canvas import svg_of as drawn
from easybalance_sim.report.sweep_figure import BY_LAYER, PANELS, chart_of, svg_of
from tests.sweep_reports import example_report


def texts(svg: str) -> list[str]:
    return re.findall(r">([^<>]+)</text>", svg)


def test_the_numbers_drawn_are_those_of_the_report() -> None:
    """By hand: x is thousands of tokens lost, y the P99, names the slots per rank; the ring is the answer by seconds,
    zero redundancy where there is none, the square the chart's own knee."""
    imbalance, seconds = (chart_of(example_report(), by).table().rows for by in PANELS)
    first, second = "8 ranks, windows of 16 steps", "16 ranks, windows of 1 step"
    assert imbalance == (
        (first, "4", 0.0, 1.5, 1, 0, 0),
        (first, "5", 4.0, 1.25, 1, 1, 1),
        (first, "6", 8.0, 1.2, 1, 0, 0),
        (second, "2", 0.0, 1.8, 1, 1, 0),
        (second, "3", 4.0, 1.4, 1, 0, 1),
        *((BY_LAYER, "", x, 1.22, 0, 0, 0) for x in (4.0, 8.0, 4.0)),
    )
    assert seconds[:5] == (
        (first, "4", 0.0, 1000.0, 1, 0, 0),
        (first, "5", 4.0, 900.0, 1, 1, 1),
        (first, "6", 8.0, 890.0, 1, 0, 0),
        (second, "2", 0.0, 800.0, 1, 1, 0),
        (second, "3", 4.0, 808.0, 0, 0, 0),
    )


def test_the_drawing_is_the_same_bytes_each_time_and_names_axes_curves_and_slots() -> None:
    svg = svg_of(example_report())
    assert svg == svg_of(example_report()) and "<dc:date>" not in svg
    found = texts(svg)
    for wanted in (
        "P99 rank imbalance of a window",
        "P99 MoE time of a step, µs",
        "KV-cache tokens lost per rank, thousands (less is better)",
        "8 ranks, windows of 16 steps",
        "16 ranks, windows of 1 step",
        BY_LAYER,
        "knee",
    ):
        assert wanted in found
    assert any("example, 2 MoE layers × 32 experts, h100" in text for text in found)
    assert {"4", "5", "6", "2", "3"} <= set(found)


def test_without_kv_bytes_the_axis_is_memory() -> None:
    table = chart_of(example_report(tokens=False), "imbalance").table()
    assert table.columns[2] == "expert memory added per rank, MB"
    assert [row[2] for row in table.rows[:3]] == [0.0, 4.0, 8.0]


def test_windows_of_other_lengths_do_not_name_the_same_slots_again() -> None:
    report = example_report()
    report["curves"] = [report["curves"][0], {**report["curves"][0], "windows": "windows of 2 steps"}]
    assert [row[1] for row in chart_of(report, "seconds").table().rows[:6]] == ["4", "5", "6", "", "", ""]


def test_small_differences_look_small() -> None:
    """An axis spans at least 5 % of its values."""
    report = example_report()
    for curve in report["curves"]:
        for number, point in enumerate(curve["points"]):
            for row in (point, point.get("per_layer", point)):
                row["step_us"] = {**row["step_us"], "p99": 1000.0 + 0.01 * number}
    ticks = [float(text) for text in texts(drawn(chart_of(report, "seconds"), "a")) if re.fullmatch(r"\d{3,4}", text)]
    assert max(ticks) - min(ticks) == pytest.approx(50, abs=15)


def test_marks_are_explained_only_where_they_are() -> None:
    report = example_report()
    for curve in report["curves"]:
        curve["knee"] = {"seconds": None, "imbalance": None}
        for point in curve["points"]:
            point.pop("per_layer", None)
    found = texts(svg_of(report))
    assert BY_LAYER not in found and "knee" not in found and "taken" in found
