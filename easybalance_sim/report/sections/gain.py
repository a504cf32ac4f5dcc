"""What does the plan win? Rank imbalance and layer time, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report import plan_words
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Figure, Section, Table
from easybalance_sim.report.sections.sides import SIDES, excess_removed, nothing_to_even, percent, side_names
from easybalance_sim.report.words import band_words, change, course

STATS = ("p50", "p95", "p99")
MORE_EXPERTS = 1.05
"""Active ones of a rank: from here on the reading of their weights is worth a word."""


def section(report: Mapping[str, Any]) -> Section:
    """Both, with all numbers in a table."""
    return Section(
        name="gain",
        title="What does the plan win?",
        lead=_lead(report),
        blocks=(_imbalance(report), _layer_time(report), _numbers(report)),
    )


def _lead(report: Mapping[str, Any]) -> str:
    """The usual case; the headline has the tail."""
    idle = nothing_to_even(report)
    if idle:
        return idle
    old, new = (report[side]["rank_imbalance"]["mean"] for side in SIDES)
    said = f"On average the busiest rank, which decides how long a layer takes, {course(old, new)} times the mean load"
    if report["model"]["assumed"]:
        return f"{said}."
    old, new = (report[side]["layer_us"]["p50"] for side in SIDES)
    return f"{said}, and the median layer time {course(old, new, '{:.1f}')} µs."


def balance(report: Mapping[str, Any]) -> str:
    """What happens to the tail of the rank imbalance, and whether that is a gain."""
    old, new = (report[side]["rank_imbalance"]["p99"] for side in SIDES)
    said = f"P99 rank imbalance {course(old, new)}"
    removed = excess_removed(old, new)
    if new > old and f"{old:.3f}" != f"{new:.3f}":
        return f"{said}: the plan is less even than the baseline."
    if removed is None:
        return f"{said}: ranks are even without the plan, there is nothing to gain."
    if f"{old:.3f}" == f"{new:.3f}":
        return f"{said}: the plan changes nothing there."
    return f"{said}: {percent(removed)} of what is above perfect balance (1.0) is gone."


def time(report: Mapping[str, Any]) -> str:
    """What happens to the P99 layer time, and whether the cost model can tell."""
    if report["model"]["assumed"]:
        return "Seconds decide nothing here: the model's widths are not known (say --model)."
    old, new = (report[side]["layer_us"]["p99"] for side in SIDES)
    said, band = f"P99 layer time {course(old, new, '{:.1f}')} µs", report["cost"]["band_p90"]
    if f"{old:.1f}" == f"{new:.1f}":
        return f"{said}: no time is gained or lost."
    if not old:
        return f"{said}: the plan takes time where the baseline takes none."
    size = abs(new / old - 1)
    if size < plan_words.HARDLY:
        return f"P99 layer time hardly changes ({old:.1f} → {new:.1f} µs): no time is gained or lost."
    if not band:
        return f"{said} ({change(old, new)}), by a cost model whose error is not known."
    told = "a smaller change than" if size <= band else "a larger change than"
    return f"{said} ({change(old, new)}), {told} the cost model's own error ({band_words(band)})."


def _imbalance(report: Mapping[str, Any]) -> Figure:
    rows = (*(stat.upper() for stat in STATS), "worst")
    series = tuple(
        Series(name=name, values=tuple(report[side]["rank_imbalance"][stat] for stat in (*STATS, "max")))
        for side, name in zip(SIDES, side_names(report), strict=True)
    )
    chart = Bars(
        rows=rows,
        row="percentile",
        series=series,
        value="rank imbalance, busiest rank / mean",
        form="{:.3f}",
        start=1.0,
    )
    pairs = (
        f"{row} {old:.3f} before and {new:.3f} after" for row, old, new in zip(rows, *_values(series), strict=True)
    )
    return Figure(
        name="rank_imbalance",
        title="Rank load: busiest rank over the mean",
        alt=f"Bars of rank imbalance over windows and layers: {', '.join(pairs)}.",
        conclusion=f"{_spread(report)} Taken over {_over(report)}.",
        chart=chart,
    )


def _spread(report: Mapping[str, Any]) -> str:
    """What the bars show beside the tail: the usual and the worst case."""
    usual, worst = (course(*(report[side]["rank_imbalance"][stat] for side in SIDES)) for stat in ("p50", "max"))
    return f"1.0 is perfect balance; the median {usual}, the worst layer of the worst window {worst}."


def _over(report: Mapping[str, Any]) -> str:
    split, layers = report["split"], report["trace"]["layers"]
    if split["held_out_windows"]:
        return f"{split['held_out_windows']:,} windows × {layers:,} layers that the plan was not made from"
    return f"the {split['fit_windows']:,} windows × {layers:,} layers that the plan was made from: no proof"


def _layer_time(report: Mapping[str, Any]) -> Figure:
    band = report["cost"]["band_p90"]
    ends = {"full_overlap": "P99, all communication hidden"}
    # Where nothing is hidden the P99 itself is that end.
    if any(report[side]["layer_us_bracket"]["serial"]["p99"] != report[side]["layer_us"]["p99"] for side in SIDES):
        ends["serial"] = "P99, nothing hidden"
    series = []
    for side, name in zip(SIDES, side_names(report), strict=True):
        bracket = report[side]["layer_us_bracket"]
        values = (*(report[side]["layer_us"][stat] for stat in STATS), *(bracket[end]["p99"] for end in ends))
        spread = tuple((max(0.0, value * (1 - band)), value * (1 + band)) for value in values)
        series.append(Series(name=name, values=values, spread=spread if band else ()))
    rows = (*(stat.upper() for stat in STATS), *ends.values())
    pairs = (
        f"{row} {old:.1f} before and {new:.1f} after" for row, old, new in zip(rows, *_values(series), strict=True)
    )
    marks = f"The marks are the error band of {band_words(band)}, which both plans share. " if band else ""
    return Figure(
        name="layer_time",
        title="Time of a MoE layer",
        alt=f"Bars of microseconds of a layer over steps and layers: {', '.join(pairs)}.",
        conclusion=f"{_known(report)}{_more_experts(report)}{marks}An engine lies between "
        f"{'nothing hidden' if 'serial' in ends else 'the P99, which hides nothing,'} and all communication hidden.",
        chart=Bars(rows=rows, row="percentile", series=tuple(series), value="layer time, µs", form="{:,.1f}"),
    )


def _known(report: Mapping[str, Any]) -> str:
    return "Drawn for widths that are only assumed: nothing follows from them. " if report["model"]["assumed"] else ""


def _more_experts(report: Mapping[str, Any]) -> str:
    """Why a more even plan can be slower: every active expert has its weights read."""
    old, new = (report[side]["active_experts_per_rank"]["mean"] for side in SIDES)
    slower = report["plan"]["layer_us"]["p99"] > report["baseline"]["layer_us"]["p99"]
    if report["model"]["assumed"] or not slower or new < MORE_EXPERTS * old:
        return ""
    return f"A rank reads the weights of more experts in a step ({old:.2f} → {new:.2f}), which small steps feel. "


def _values(series: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    first, second = (one.values for one in series)
    return first, second


def _numbers(report: Mapping[str, Any]) -> Table:
    group, unit, rows = "", "", []
    for label, *cells in plan_words.comparison(report):
        # On a page every row says in full what it is.
        full = f"{group}, {label.strip()}{unit}" if label.startswith(" ") else label
        if not label.startswith(" "):
            group, unit = label.partition(",")[0].removesuffix(" P50"), ", µs" * label.endswith("µs")
        rows.append((full, *cells))
    first, second = side_names(report)
    return Table(
        name="comparison",
        title="All figures",
        columns=("", first, second, "change"),
        rows=tuple(rows),
    )
