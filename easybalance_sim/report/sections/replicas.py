"""Who has replicas, and why?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.report.charts.heat_map import HeatMap, Panel
from easybalance_sim.report.content import Block, Figure, Section, Table
from easybalance_sim.report.sections.sides import layer_ids, over_mean, percent
from easybalance_sim.report.words import many

MOST_ROWS = 12
BUSY_SHARE = 0.25
"""Of the experts of a layer: these count as its busy ones."""


def section(report: Mapping[str, Any]) -> Section | None:
    """None where the report does not say how many replicas each expert has."""
    maps = report.get("maps") or {}
    if not maps.get("replicas"):
        return None
    replicas: IntArray = np.array(maps["replicas"], np.int64)
    load = over_mean(maps["expert_tokens"]) if maps.get("expert_tokens") else None
    blocks: tuple[Block, ...] = ()
    if (replicas > 1).any():
        blocks = (_map(report, replicas, load), _table(report, replicas, load))
    return Section(name="replicas", title="Who has replicas, and why?", lead=_lead(replicas), blocks=blocks)


def _lead(replicas: IntArray) -> str:
    slots, experts = int(replicas.sum(axis=1).max()), replicas.shape[1]
    if not (replicas > 1).any():
        return f"Nobody: {many(experts, 'expert')} in {many(slots, 'slot')} per layer, the plan only arranges them."
    several = (replicas > 1).sum(axis=1)
    return (
        f"{many(slots, 'slot')} per layer hold {many(experts, 'expert')}; {several.mean():.1f} of them (mean over "
        f"layers) have more than one replica, at most {int(replicas.max())}."
    )


def _map(report: Mapping[str, Any], replicas: IntArray, load: FloatArray | None) -> Figure:
    ids = layer_ids(report)
    several = replicas > 1
    return Figure(
        name="replicas",
        title="Replicas of each expert",
        alt=f"Map of {len(ids)} layers × {replicas.shape[1]} experts: {int(several.sum()):,} have several "
        f"replicas, at most {int(replicas.max())}.",
        conclusion=f"{_why(several, load)} Blank: one replica.",
        chart=HeatMap(
            panels=(Panel(title="", values=np.where(several, replicas, np.nan)),),
            rows=ids, columns=tuple(range(replicas.shape[1])), row="layer", column="expert", value="replicas",
            form="{:.0f}",
        ),
    )  # fmt: skip


def _why(several: AnyArray, load: FloatArray | None) -> str:
    """Whether replicas go to the experts that are busy on the whole."""
    if load is None:
        return "Why they have them needs a replay of the trace."
    places = _places(load)
    share = float((places[several] <= max(1, round(BUSY_SHARE * load.shape[1]))).mean())
    said = f"{percent(share)} of the experts with several replicas are among the busiest quarter of their layer"
    if share >= 0.75:
        return f"{said}: replicas follow the load."
    if share <= 0.4:
        return f"{said}, by chance {percent(BUSY_SHARE)} would be: the load on the whole does not decide who has them."
    return f"{said}; the others burst in some windows or relieve a full rank."


def _places(load: FloatArray) -> IntArray:
    """int64[L, E] 1 = the busiest of its layer."""
    order = np.argsort(-np.where(np.isfinite(load), load, 0.0), axis=1, kind="stable")
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(1, load.shape[1] + 1)[None, :].repeat(len(load), 0), axis=1)
    return places


def _table(report: Mapping[str, Any], replicas: IntArray, load: FloatArray | None) -> Table:
    ids = layer_ids(report)
    weight = np.zeros(replicas.shape) if load is None else np.where(np.isfinite(load), load, 0.0)
    layer, expert = np.nonzero(replicas > 1)
    order = np.lexsort((expert, layer, -weight[layer, expert], -replicas[layer, expert]))[:MOST_ROWS]
    places = None if load is None else _places(load)
    rows = []
    for row, one in zip(layer[order].tolist(), expert[order].tolist(), strict=True):
        cells = [str(ids[row]), str(one), str(int(replicas[row, one]))]
        if load is not None and places is not None:
            cells += _cells(float(weight[row, one]), int(replicas[row, one]), int(places[row, one]), load.shape[1])
        rows.append(tuple(cells))
    head = ("layer", "expert", "replicas")
    more = ("share of tokens", "over mean", "per replica", "place", "why")
    return Table(
        name="most_replicated",
        title="Most replicated experts",
        columns=(*head, *more) if load is not None else head,
        rows=tuple(rows),
        note=f"{len(order):,} of {int((replicas > 1).sum()):,}: most replicas first, of equally many the busiest. "
        "ebsim explain PLAN --layer N --expert N says what one replica more or fewer would do.",
    )


def _cells(over: float, replicas: int, place: int, experts: int) -> list[str]:
    """Load of an expert over the mean of its layer, the same of a replica, its place, and why it has them."""
    if over / replicas >= 1:
        why = "busier than a mean expert even when shared"
    elif place <= max(1, round(BUSY_SHARE * experts)):
        why = "among the busiest quarter of its layer"
    elif over >= 1:
        why = "a little above the mean: bursts, or relief for a full rank"
    else:
        why = "not busy on the whole: bursts, or relief for a full rank"
    return [f"{100 * over / experts:.2f} %", f"{over:.2f}", f"{over / replicas:.2f}", f"{place} of {experts}", why]
