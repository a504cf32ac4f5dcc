"""The figure of offloading: its numbers, and that the drawing is the same each time and holds what it should."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

from easybalance_sim.report.offload_figure import figure_of, panels_of, svg_of
from tests.offload_reports import example_report

GOLDEN = Path(__file__).parents[1] / "golden" / "offload" / "panels.json"
SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_the_numbers_drawn_are_the_golden_ones() -> None:
    """By hand: x is the share in %, y the hit rate in % and the step over all-resident."""
    drawn = [[dataclasses.asdict(panel) for panel in row] for row in panels_of(example_report())]
    assert json.loads(json.dumps(drawn)) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_drawing_is_the_same_bytes_each_time_and_has_no_date() -> None:
    first = svg_of(example_report())
    assert first == svg_of(example_report())
    assert "<dc:date>" not in first


def test_texts_name_axes_curves_and_batch_sizes() -> None:
    found = texts(svg_of(example_report()))
    for wanted in (
        "experts on the GPU, %",
        "experts that were there, %",
        "mean step, times all-resident",
        "Experts off the GPU: example, int4_g32 over pcie5",
        "belady",
        "lru + history",
        "1 at once",
        "8 at once",
    ):
        assert wanted in found


def test_only_long_steps_need_a_logarithmic_axis() -> None:
    assert [axes.get_yscale() for axes in figure_of(example_report()).axes] == ["linear", "linear", "linear", "log"]


def test_bounds_are_dashed() -> None:
    lines = figure_of(example_report()).axes[0].get_lines()
    assert [line.get_linestyle() for line in lines] == ["--", "-", "-"]
