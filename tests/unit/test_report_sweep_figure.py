"""The figure of a sweep: its numbers, and that the drawing is the same each time and holds what it should."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

from easybalance_sim.report.sweep_figure import figure_of, panels_of, svg_of
from tests.sweep_reports import example_report

GOLDEN = Path(__file__).parents[1] / "golden" / "sweep" / "panels.json"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_the_numbers_drawn_are_the_golden_ones() -> None:
    """By hand: x is thousands of tokens lost, y the P99, labels the slots per rank, the knee that of the panel."""
    drawn = [dataclasses.asdict(panel) for panel in panels_of(example_report())]
    assert json.loads(json.dumps(drawn)) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_drawing_is_the_same_bytes_each_time_and_has_no_date() -> None:
    first = svg_of(example_report())
    assert first == svg_of(example_report())
    assert "<dc:date>" not in first


def test_texts_are_texts_that_name_axes_curves_and_slots() -> None:
    found = texts(svg_of(example_report()))
    for wanted in (
        "P99 rank imbalance of a window",
        "P99 MoE time of a step, µs",
        "KV-cache tokens lost per rank, thousands →",
        "8 ranks, windows of 16 steps",
        "16 ranks, windows of 1 step",
        "slots by layer, no more memory",
    ):
        assert wanted in found
    assert any("example, 2 MoE layers × 32 experts, h100" in text for text in found)
    assert {"4", "5", "6", "2", "3"} <= set(found)


def test_without_kv_bytes_the_axis_is_memory() -> None:
    report = example_report(tokens=False)
    assert "expert memory added per rank, MB →" in texts(svg_of(report))
    assert panels_of(report)[0].series[0].x == (0.0, 4.0, 8.0)


def test_small_differences_look_small() -> None:
    """An axis spans at least 5 % of its values."""
    report = example_report()
    for curve in report["curves"]:
        for number, point in enumerate(curve["points"]):
            for row in (point, point.get("per_layer", point)):
                row["step_us"] = {**row["step_us"], "p99": 1000.0 + 0.01 * number}
    low, high = figure_of(report).axes[1].get_ylim()
    assert high - low >= 0.049 * 1000


def test_marks_are_explained_only_where_they_are() -> None:
    report = example_report()
    for curve in report["curves"]:
        curve["knee"] = {"seconds": None, "imbalance": None}
        for point in curve["points"]:
            point.pop("per_layer", None)
    found = " ".join(texts(svg_of(report)))
    assert "by layer" not in found and "knee" not in found
