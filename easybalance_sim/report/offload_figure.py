"""The figure of `ebsim offload`: hit rate and step time against the share of experts on the GPU, by batch size."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from easybalance_sim.report.sweep_figure import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = (("hit_rate", "experts that were there, %", 100.0), ("slowdown", "mean step, times all-resident", 1.0))
WIDTH, HEIGHT = 4.2, 3.2
WIDE = 4.0
"""Step times beyond so many times all-resident are drawn on a logarithmic axis."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One policy with its predictor. x: % of all experts that the cache holds · y: in the row's unit · bound: it knows
    the future."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    bound: bool


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One axes: batch size and row."""

    title: str
    label: str
    lines: tuple[Line, ...]


def panels_of(report: Mapping[str, Any]) -> tuple[tuple[Panel, ...], ...]:
    """What is drawn, row by row, as plain numbers."""
    return tuple(tuple(_panel(batch, key, label, unit) for batch in report["batches"]) for key, label, unit in ROWS)


def svg_of(report: Mapping[str, Any]) -> str:
    """The figure as SVG text, the same bytes for the same report."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure_of(report).savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def figure_of(report: Mapping[str, Any]) -> Figure:
    """The figure: a column for each batch size, hit rates above step times."""
    rows = panels_of(report)
    columns = len(rows[0])
    figure = Figure(figsize=(0.6 + WIDTH * columns, 1.2 + HEIGHT * len(rows)), layout="constrained")
    for axes, panels in zip(figure.subplots(len(rows), columns, squeeze=False), rows, strict=True):
        for one, panel in zip(axes, panels, strict=True):
            _draw(one, panel)
    for one, panel in zip(figure.axes[columns:], rows[1], strict=True):
        if max(max(line.y) for line in panel.lines) > WIDE:
            one.set_yscale("log", base=2)
            one.yaxis.set_major_formatter("{x:g}")
        one.set_title("", loc="left")
        one.set_xlabel("experts on the GPU, %")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", ncols=4, frameon=False, fontsize=8.5)
    model, host = report["model"], report["host"]
    subject = f"{model['name'] or 'unnamed model'}, {model['offload_dtype']} over {host['name']}"
    figure.suptitle(f"Experts off the GPU: {subject}", x=0.01, ha="left", fontsize=11.5)
    return figure


def _panel(batch: Mapping[str, Any], key: str, label: str, unit: float) -> Panel:
    title = "as recorded" if batch["batch"] is None else f"{batch['batch']} at once"
    return Panel(title=title, label=label, lines=tuple(_line(curve, key, unit) for curve in batch["curves"]))


def _line(curve: Mapping[str, Any], key: str, unit: float) -> Line:
    fetched = "" if curve["prefetch"] == "none" else f" + {curve['prefetch']}"
    return Line(
        name=f"{curve['policy']}{fetched}",
        x=tuple(100.0 * point["share"] for point in curve["points"]),
        y=tuple(unit * point[key] for point in curve["points"]),
        bound=curve["bound"],
    )


def _draw(axes: Axes, panel: Panel) -> None:
    """Bounds are dashed."""
    for number, line in enumerate(panel.lines):
        style = "--" if line.bound else "-"
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(line.x, line.y, style, color=colour, marker="o", markersize=3, linewidth=1.4, label=line.name)
    axes.set_title(panel.title, loc="left", fontsize=10.5)
    axes.set_ylabel(panel.label)
    axes.grid(alpha=0.25, linewidth=0.6)
