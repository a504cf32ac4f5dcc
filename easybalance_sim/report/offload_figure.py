"""The figure of `ebsim offload`: hit rate and step time against the share of experts on the GPU, by batch size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report import canvas
from easybalance_sim.report.charts.lines import Bound, Line, Lines
from easybalance_sim.report.charts.sheet import Sheet

ROWS = {"hit_rate": ("experts that were there, %", 100.0), "slowdown": ("mean step, times all-resident", 1.0)}
X = "experts on the GPU, %"
WIDE = 4.0
"""Step times beyond so many times all-resident are drawn on a logarithmic axis."""


def svg_of(report: Mapping[str, Any]) -> str:
    """A column for each batch size, hit rates above step times, as SVG text; the same bytes for the same report."""
    rows = tuple(tuple((title(batch), chart_of(report, batch, key)) for batch in report["batches"]) for key in ROWS)
    return canvas.svg_of(Sheet(title=f"Experts off the GPU: {subject(report)}", rows=rows), "offload")


def chart_of(report: Mapping[str, Any], batch: Mapping[str, Any], key: str) -> Lines:
    """One batch size; key: of `ROWS`. Policies that know the future are dashed."""
    label, unit = ROWS[key]
    lines = tuple(_line(curve, key, unit) for curve in batch["curves"])
    most = max(value for line in lines for value in line.y if value is not None)
    limit = Bound(y=1 + report["within"], name=f"{100 * report['within']:g} % longer")
    bounds = (limit,) if key == "slowdown" else ()
    return Lines(lines=lines, x=X, y=label, bounds=bounds, log=key == "slowdown" and most > WIDE)


def title(batch: Mapping[str, Any]) -> str:
    """How many requests run at once."""
    return "as recorded" if batch["batch"] is None else f"{batch['batch']} at once"


def named(curve: Mapping[str, Any]) -> str:
    """A policy and its predictor."""
    return str(curve["policy"]) if curve["prefetch"] == "none" else f"{curve['policy']} + {curve['prefetch']}"


def subject(report: Mapping[str, Any]) -> str:
    """What travels over what."""
    model, host = report["model"], report["host"]
    return f"{model['name'] or 'unnamed model'}, {model['offload_dtype']} over {host['name']}"


def _line(curve: Mapping[str, Any], key: str, unit: float) -> Line:
    points = curve["points"]
    return Line(
        name=named(curve),
        x=tuple(100 * float(point["share"]) for point in points),
        y=tuple(unit * float(point[key]) for point in points),
        dashed=bool(curve["bound"]),
        dots=True,
    )
