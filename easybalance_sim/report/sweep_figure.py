"""The figure of a sweep: what a step costs and how uneven it is, against the KV cache that redundant slots take."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1f5fa8", "#c8541d", "#2c8a57", "#8d4aa3", "#a8861f", "#5b6470", "#c22f5c", "#2b9bb3")
PANELS = (("imbalance", "P99 rank imbalance of a window"), ("seconds", "P99 MoE time of a step, µs"))
LEAST_SPAN = 0.05
"""Of an axis, relative to its values."""
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "ebsim",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve of one panel. x: memory given up per rank · y: less is better · labels: slots per rank ·
    by_layer: (x, y) of the points with slots by layer · knee: index of the marked point, None = none."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    labels: tuple[str, ...]
    by_layer: tuple[tuple[float, float], ...]
    knee: int | None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One axes: its title, whether its knee is the one that counts, and its curves."""

    title: str
    decides: bool
    series: tuple[Series, ...]


def panels_of(report: Mapping[str, Any]) -> tuple[Panel, ...]:
    """What is drawn, as plain numbers."""
    return tuple(
        Panel(
            title=title,
            decides=report["gain_by"] == by,
            series=tuple(_series(curve, by, _in_tokens(report)) for curve in report["curves"]),
        )
        for by, title in PANELS
    )


def svg_of(report: Mapping[str, Any]) -> str:
    """The figure as SVG text, the same bytes for the same report."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure_of(report).savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def figure_of(report: Mapping[str, Any]) -> Figure:
    """The figure, one panel for each of `PANELS`."""
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    panels = panels_of(report)
    unit = "KV-cache tokens lost per rank, thousands" if _in_tokens(report) else "expert memory added per rank, MB"
    for axes, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
        named: set[tuple[str, ...]] = set()
        for number, series in enumerate(panel.series):
            colour = COLOURS[number % len(COLOURS)]
            _draw(axes, series, colour, panel.decides)
            # Windows of other lengths have the same slots: their numbers would lie on one another.
            if series.labels not in named:
                _name_points(axes, series, colour)
            named.add(series.labels)
        axes.set_title(panel.title, loc="left", fontsize=10.5)
        axes.set_xlabel(f"{unit} →")
        axes.grid(axis="y", alpha=0.25, linewidth=0.6)
        axes.margins(x=0.08, y=0.16)
        _keep_calm(axes)
    _legend(figure, panels)
    figure.suptitle(f"Redundant slots: {_subject(report)} (less is better)", x=0.01, ha="left", fontsize=11.5)
    return figure


def _series(curve: Mapping[str, Any], by: str, in_tokens: bool) -> Series:
    points, first = curve["points"], curve["points"][0]
    many = [point["per_layer"] for point in points if "per_layer" in point]
    knee = curve["knee"][by]
    return Series(
        name=f"{curve['ranks']} ranks, {curve['windows']}",
        x=tuple(_paid(point, first, in_tokens) for point in points),
        y=tuple(_height(point, by) for point in points),
        labels=tuple(str(point["slots_per_rank"]) for point in points),
        by_layer=tuple((_paid(row, first, in_tokens), _height(row, by)) for row in many),
        knee=None if knee is None else knee["point"],
    )


def _paid(row: Mapping[str, Any], first: Mapping[str, Any], in_tokens: bool) -> float:
    if in_tokens:
        return float(row["kv_tokens_lost"]) / 1e3
    return float(row["memory_bytes_per_rank"] - first["memory_bytes_per_rank"]) / 1e6


def _height(row: Mapping[str, Any], by: str) -> float:
    return float(row["rank_imbalance"]["p99"] if by == "imbalance" else row["step_us"]["p99"])


def _in_tokens(report: Mapping[str, Any]) -> bool:
    return all(point["kv_tokens_lost"] is not None for curve in report["curves"] for point in curve["points"])


def _draw(axes: Axes, series: Series, colour: str, decides: bool) -> None:
    axes.plot(series.x, series.y, marker="o", markersize=4.5, linewidth=1.6, color=colour)
    if series.by_layer:
        axes.plot(*zip(*series.by_layer, strict=True), linestyle="", marker="D", markersize=5, mfc="none", mec=colour)
    if series.knee is not None:
        place = [series.x[series.knee]], [series.y[series.knee]]
        style = "-" if decides else ":"
        axes.scatter(*place, s=170, facecolors="none", edgecolors=colour, linewidths=1.6, linestyle=style)


def _name_points(axes: Axes, series: Series, colour: str) -> None:
    for x, y, label in zip(series.x, series.y, series.labels, strict=True):
        axes.annotate(label, (x, y), xytext=(0, 10), textcoords="offset points", ha="center", fontsize=8, color=colour)


def _keep_calm(axes: Axes) -> None:
    """Differences of a few per mille shall look as small as they are."""
    low, high = axes.get_ylim()
    missing = LEAST_SPAN * (low + high) / 2 - (high - low)
    if missing > 0:
        axes.set_ylim(low - missing / 2, high + missing / 2)


def _legend(figure: Figure, panels: tuple[Panel, ...]) -> None:
    """Curves by colour, then what the marks mean."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=COLOURS[number % len(COLOURS)], marker="o", markersize=4.5, label=series.name)
        for number, series in enumerate(panels[0].series)
    ]
    grey: dict[str, Any] = {"color": "none", "markeredgecolor": "#444444", "markerfacecolor": "none"}
    if any(series.by_layer for series in panels[0].series):
        handles.append(Line2D([], [], marker="D", markersize=5, label="slots by layer, no more memory", **grey))
    if any(series.knee is not None for panel in panels for series in panel.series):
        handles.append(Line2D([], [], marker="o", markersize=11, label="knee (dotted: of this panel alone)", **grey))
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=8.5)


def _subject(report: Mapping[str, Any]) -> str:
    trace = report["trace"]
    name = report["model"]["name"] or "unnamed model"
    return f"{name}, {trace['layers']} MoE layers × {trace['experts']} experts, {report['profile']}"
