"""Where does the load lie? By layer, by expert and by rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.heat_map import HeatMap, Panel
from easybalance_sim.report.charts.lines import Bound, Line, Lines
from easybalance_sim.report.content import Block, Chart, Figure, Section
from easybalance_sim.report.sections.sides import SIDES, layer_ids, nothing_to_even, over_mean
from easybalance_sim.report.words import course, many

FEW_LAYERS = 4
"""Up to so many are bars, and points of a line are marked."""
EVEN_LAYER = 1.005
"""Mean imbalance of a layer: less is nothing to work on."""
EVEN = 1.05
"""Of tokens over their mean: less is hardly to be seen."""


def section(report: Mapping[str, Any]) -> Section:
    """Layers always; experts and ranks where the report has maps of them."""
    blocks: list[Block] = [_layers(report)]
    maps = report.get("maps") or {}
    if maps.get("expert_tokens"):
        blocks.append(_experts(report))
    if report["cluster"]["ranks"] > 1 and all(maps.get(side, {}).get("rank_tokens") for side in SIDES):
        blocks.append(_ranks(report))
    return Section(name="places", title="Where does the load lie?", lead=_lead(report), blocks=tuple(blocks))


def _evener(report: Mapping[str, Any]) -> str:
    evener, worse = _compared(report)
    said = f"The plan is more even in {evener:,} of {many(report['trace']['layers'], 'layer')}"
    return f"{said} and less even in {worse:,}." if worse else f"{said}."


def _lead(report: Mapping[str, Any]) -> str:
    said = nothing_to_even(report) or _evener(report)
    if not (report.get("maps") or {}).get("expert_tokens"):
        said += " Maps of experts and ranks need a replay of the trace, and are left out where they are too large."
    return said


def _compared(report: Mapping[str, Any]) -> tuple[int, int]:
    """In how many layers the plan's mean imbalance is lower than the baseline's, and in how many higher."""
    old, new = (np.array(report[side]["rank_imbalance_by_layer"]["mean"]) for side in SIDES)
    return int((new < old - 5e-4).sum()), int((new > old + 5e-4).sum())


def _layers(report: Mapping[str, Any]) -> Figure:
    ids = layer_ids(report)
    after = report["plan"]["rank_imbalance_by_layer"]
    return Figure(
        name="layers",
        title="Imbalance of each layer",
        alt=(
            f"Rank imbalance of {many(len(ids), 'layer')}, mean and P99 over windows, baseline and plan: the plan's "
            f"mean runs from {min(after['mean']):.3f} to {max(after['mean']):.3f}."
        ),
        conclusion=f"Mean and P99 over windows. {_most_uneven(report, ids)}",
        chart=_layer_chart(report, ids),
    )


def _most_uneven(report: Mapping[str, Any], ids: tuple[int, ...]) -> str:
    """The worst layers under the plan, and where a plan made from the judged traffic shows that more can be had."""
    found = {side: report[side]["rank_imbalance_by_layer"] for side in (*SIDES, "floor")}
    mean, tail = (int(np.argmax(found["plan"][stat])) for stat in ("mean", "p99"))
    if found["plan"]["mean"][mean] < EVEN_LAYER:
        return "No layer is left with anything to even out."
    moved = course(found["baseline"]["mean"][mean], found["plan"]["mean"][mean])
    by_tail = ", by the P99, too" if mean == tail else f"; by the P99 it is layer {ids[tail]}"
    room = np.array(found["plan"]["mean"]) - np.array(found["floor"]["mean"])
    most = int(np.argmax(room))
    said = f"By the mean the plan's most uneven layer is {ids[mean]}, where it {moved}{by_tail}."
    if room[most] < EVEN_LAYER - 1:
        return f"{said} A plan made from this very traffic is no more even in any layer."
    return (
        f"{said} A longer search pays most in layer {ids[most]}: its mean is {found['plan']['mean'][most]:.3f}, with a "
        f"plan made from this very traffic {found['floor']['mean'][most]:.3f}."
    )


def _layer_chart(report: Mapping[str, Any], ids: tuple[int, ...]) -> Chart:
    curves = [
        (f"{side}, {name}", tuple(report[side]["rank_imbalance_by_layer"][stat]))
        for stat, name in (("mean", "mean"), ("p99", "P99"))
        for side in SIDES
    ]
    if len(ids) <= FEW_LAYERS:
        series = tuple(Series(name=name, values=values) for name, values in curves)
        rows = tuple(f"layer {one}" for one in ids)
        return Bars(rows=rows, row="layer", series=series, value="rank imbalance", form="{:.3f}", start=1.0)
    x = tuple(float(one) for one in ids)
    lines = tuple(Line(name=name, x=x, y=values, dots=len(ids) <= 40) for name, values in curves)
    return Lines(lines=lines, x="layer", y="rank imbalance", bounds=(Bound(y=1.0, name="perfect"),))


def _experts(report: Mapping[str, Any]) -> Figure:
    ids, values = layer_ids(report), over_mean(report["maps"]["expert_tokens"])
    row, expert, most = _peak(values)
    idle = int((values == 0).sum())
    middle = float(np.median(_known(values).max(axis=1)))
    if most < EVEN:
        told = (
            "Over all judged traffic the experts are chosen evenly; what imbalance there is comes from single windows."
        )
    else:
        told = (
            f"Expert {expert} of layer {ids[row]} takes {most:.2f} times the mean of its layer; in the median layer "
            f"the busiest expert takes {middle:.2f} times."
        )
        told += "" if report["cluster"]["ranks"] == 1 else " Such skew is what replicas are for."
    if idle:
        told += f" {many(idle, 'expert')} (over all layers) got no token."
    return Figure(
        name="expert_load",
        title="Tokens of each expert over the mean of its layer",
        alt=f"Heat map of {len(ids)} layers × {values.shape[1]} experts, from {_low(values):.2f} to {most:.2f} times "
        "the mean.",
        conclusion=told,
        chart=HeatMap(
            panels=(Panel(title="", values=values),),
            rows=ids, columns=tuple(range(values.shape[1])), row="layer", column="expert", value="tokens / mean",
            centre=1.0,
        ),
    )  # fmt: skip


def _ranks(report: Mapping[str, Any]) -> Figure:
    ids, speed = layer_ids(report), np.array(report["maps"]["rank_speed"])
    before, after = (over_mean(report["maps"][side]["rank_tokens"]) for side in SIDES)
    if np.ptp(speed):
        before, after = (np.round(one * speed.mean() / speed, 4) for one in (before, after))
    old, new = (float(_known(one).max(axis=1).mean()) for one in (before, after))
    most = _peak(after)
    told = (
        f"Added up over all judged traffic, the busiest rank of a layer carries {old:.3f} times the mean before and "
        f"{new:.3f} times after (mean over layers)"
    )
    if max(old, new) < EVEN:
        told += ": on average ranks are even either way, the figures above come from single windows."
    elif new < old - 5e-4:
        told += f"; the busiest cell that is left is rank {most[1]} in layer {ids[most[0]]} ({most[2]:.2f})."
    else:
        told += ": the plan does not even out the average; what it wins, if anything, it wins in single windows."
    faster = " per speed of the rank" if np.ptp(speed) else ""
    return Figure(
        name="rank_load",
        title="Load of each rank over the mean of the layer",
        alt=(
            f"Two heat maps of {len(ids)} layers × {before.shape[1]} ranks, baseline and plan: up to "
            f"{_peak(before)[2]:.2f} times the mean before, up to {most[2]:.2f} after."
        ),
        conclusion=told,
        chart=HeatMap(
            panels=(Panel(title="baseline", values=before), Panel(title="plan", values=after)),
            rows=ids, columns=tuple(range(before.shape[1])), row="layer", column="rank", value=f"tokens{faster} / mean",
            centre=1.0,
        ),
    )  # fmt: skip


def _known(values: FloatArray) -> FloatArray:
    """With layers without traffic even."""
    return np.where(np.isfinite(values), values, 1.0)


def _peak(values: FloatArray) -> tuple[int, int, float]:
    """Row, column and size of the largest value."""
    row, column = divmod(int(np.argmax(_known(values))), values.shape[1])
    return row, column, float(_known(values)[row, column])


def _low(values: FloatArray) -> float:
    return float(_known(values).min())
