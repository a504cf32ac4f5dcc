"""The figure of `ebsim offset`: its numbers, and that the drawing is the same each time and names what it should."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from easybalance_sim.report.charts.prices import Mark
from easybalance_sim.report.front_figure import chart_of, marks_of, svg_of

GOLDEN = Path(__file__).parents[1] / "golden" / "front" / "marks.json"


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


def _plain(mark: Mark) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(mark).items() if name != "knee"}


def test_the_numbers_drawn_are_the_golden_ones() -> None:
    """By hand: imbalances as they are, losses in thousandths of a nat, the middle of a band never below zero."""
    drawn = {
        axis: [{**_plain(mark), "middle": round(mark.middle, 6)} for mark in marks_of(example_report(), axis)]
        for axis in ("step_mean", "step_p99")
    }
    assert json.loads(json.dumps(drawn)) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_drawing_is_the_same_bytes_each_time_and_has_no_date() -> None:
    first = svg_of(example_report())
    assert first == svg_of(example_report())
    assert "<dc:date>" not in first


def test_what_nothing_beats_and_what_is_dear_is_numbered_and_named() -> None:
    """By rising price, then by falling imbalance."""
    found = re.findall(r">([^<>]+)</text>", svg_of(example_report()))
    names = [re.sub(r"^(\d) +", r"\1 ", text) for text in found if re.match(r"\d +[a-z]", text)]
    assert names == [
        "1 window plan", "2 more slots + least-loaded replica", "3 window plan + cap", "4 rotation",
    ]  # fmt: skip
    assert not any(text.endswith("chance alone") for text in found) and {"1", "2", "3", "4"} <= set(found)
    assert "busiest / mean rank of a step, mean" in found and {"lossless", "lossy", "more slots"} <= set(found)


def test_nothing_is_drawn_left_of_no_loss() -> None:
    rows = chart_of(example_report()).table().rows
    assert min(float(str(row[3])) for row in rows) < 0
    assert all(mark.middle >= 0 for mark in chart_of(example_report()).marks)


def test_the_knee_is_marked_where_the_report_has_one() -> None:
    report = example_report()
    assert not any(mark.knee for mark in chart_of(report).marks)
    report["front"]["fronts"][0]["knee"] = "window plan + cap"
    assert [mark.name for mark in chart_of(report).marks if mark.knee] == ["window plan + cap"]
    assert not any(mark.knee for mark in chart_of(report, "step_p99").marks)
