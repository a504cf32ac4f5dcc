"""The figure of `ebsim offset`: its numbers, and that the drawing is the same each time and names what it should."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from easybalance_sim.report.front_figure import figure_of, marks_of, svg_of

GOLDEN = Path(__file__).parents[1] / "golden" / "front" / "marks.json"
SVG = "{http://www.w3.org/2000/svg}"


def row(
    name: str, mean: float, p99: float, loss: tuple[float, float] = (0.0, 0.0), *, slots: int = 64, floor: bool = False
) -> dict[str, Any]:
    """Of a report; loss: nats."""
    band = {"low_nats": loss[0], "high_nats": loss[1]}
    return {
        "name": name, "balance": {"step_mean": mean, "step_p99": p99}, "price": {"loss_nats": band}, "slots": slots,
        "lossless": loss == (0.0, 0.0), "floor": floor,
    }  # fmt: skip


def example_report() -> dict[str, Any]:
    """A floor, a plan that is beaten, two that nothing beats, one with more slots, one that is dear."""
    rows = [
        row("chance alone", 1.207, 1.55, floor=True),
        row("plan", 1.389, 2.14),
        row("window plan", 1.235, 1.54),
        row("more slots + least-loaded replica", 1.08, 1.31, slots=80),
        row("window plan + cap", 1.11, 1.14, (-0.0017, 0.0045)),
        row("rotation", 1.47, 2.18, (0.0859, 0.2051)),
    ]
    best = [[{"name": rows[n]["name"]} for n in places] for places in ((2, 3, 4), (2, 4))]
    axes = zip(("step_mean", "step_p99"), best, strict=True)
    return {"front": {"rows": rows, "fronts": [{"axis": axis, "points": points} for axis, points in axes]}}


def test_the_numbers_drawn_are_the_golden_ones() -> None:
    """By hand: imbalances as they are, losses in thousandths of a nat, the middle of a band never below zero."""
    drawn = {
        axis: [
            {**dataclasses.asdict(mark), "middle": round(mark.middle, 6)} for mark in marks_of(example_report(), axis)
        ]
        for axis in ("step_mean", "step_p99")
    }
    assert json.loads(json.dumps(drawn)) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_drawing_is_the_same_bytes_each_time_and_has_no_date() -> None:
    first = svg_of(example_report())
    assert first == svg_of(example_report())
    assert "<dc:date>" not in first


def test_what_nothing_beats_and_what_is_dear_is_named() -> None:
    found = [node.text or "" for node in ElementTree.fromstring(svg_of(example_report())).iter(f"{SVG}text")]
    for wanted in ("window plan", "window plan + cap", "more slots + least-loaded replica", "rotation"):
        assert wanted in found
    assert "plan" not in found and "chance alone" not in found
    assert "busiest / mean rank of a step" in found and {"lossless", "lossy", "more slots"} <= set(found)


def test_nothing_is_drawn_left_of_no_loss() -> None:
    (axes,) = figure_of(example_report()).axes
    assert axes.get_xlim()[0] < 0
    drawn = [float(x) for line in axes.lines for x in np.asarray(line.get_xdata(), np.float64)]
    assert len(drawn) >= 6 and min(drawn) == 0
