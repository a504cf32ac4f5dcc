"""What crosses the links? Bytes per token from rank to rank and from node to node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.report.charts.heat_map import HeatMap, Panel
from easybalance_sim.report.content import Block, Figure, Section
from easybalance_sim.report.sections.sides import SIDES, in_brackets
from easybalance_sim.report.words import course, many

KINDS = {"node_bytes_per_token": ("node", "nodes"), "rank_bytes_per_token": ("rank", "ranks")}

SAME = 0.02
"""Of what a rank or node takes in: less is no change."""


def section(report: Mapping[str, Any]) -> Section | None:
    """Matrices before and after; None where there is one rank, which sends nothing."""
    if report["cluster"]["ranks"] == 1:
        return None
    blocks: list[Block] = [_matrix(report, key) for key in KINDS if _shown(report, key)]
    left_out = [
        f"{report['cluster'][plural]:,} {plural}" for key, (_, plural) in KINDS.items() if not _there(report, key)
    ]
    lead = f"{_across(report)} {_verdict(report)}".rstrip()
    if left_out:
        lead += f" Matrices of {' and of '.join(left_out)} are too large for a report and left out."
    return Section(name="links", title="What crosses the links?", lead=lead, blocks=tuple(blocks))


def _there(report: Mapping[str, Any], key: str) -> bool:
    return all(key in report[side]["traffic"] for side in SIDES)


def _shown(report: Mapping[str, Any], key: str) -> bool:
    return _there(report, key) and len(report["plan"]["traffic"][key]) > 1


def _across(report: Mapping[str, Any]) -> str:
    old, new = (report[side]["cross_node_bytes_per_token"] for side in SIDES)
    nodes = report["cluster"]["nodes"]
    if nodes == 1:
        return "All ranks share one node: nothing leaves it, with either plan."
    said = f"Traffic between the {many(nodes, 'node')} {course(old, new, '{:,.0f}')} bytes per token"
    if not old and not new:
        return f"{said}: no copy leaves its node."
    return f"{said}{in_brackets(old, new)}." if old != new else f"{said}: the plan changes nothing there."


def _matrix(report: Mapping[str, Any], key: str) -> Figure:
    kind, plural = KINDS[key]
    before, after = (_pairs(report, side, key) for side in SIDES)
    ids = tuple(range(len(after)))
    expected = " Count traces do not tell senders: they count as uniform." if report["cost"]["expected_values"] else ""
    return Figure(
        name=f"{kind}_bytes",
        title=f"Bytes per token from {kind} to {kind}",
        alt=(
            f"Two heat maps of {len(ids)} × {len(ids)} {plural}, baseline and plan: the fullest pair of different "
            f"{plural} carries {_fullest(before):,.0f} bytes per token before and {_fullest(after):,.0f} after."
        ),
        conclusion=f"{_sent(kind, plural, before, after)}{expected}",
        chart=HeatMap(
            panels=(Panel(title="baseline", values=before), Panel(title="plan", values=after)),
            rows=ids, columns=ids, row=f"from {kind}", column=f"to {kind}", value="bytes per token", form="{:,.0f}",
        ),
    )  # fmt: skip


def _pairs(report: Mapping[str, Any], side: str, key: str) -> FloatArray:
    values: FloatArray = np.array(report[side]["traffic"][key], np.float64)
    return values.round(1)


def _sent(kind: str, plural: str, before: FloatArray, after: FloatArray) -> str:
    """What one sends to others in all, and what the fullest takes in."""
    old, new = _others(before), _others(after)
    if not old and not new:
        return f"No {kind} sends anything to another, with either plan."
    most = [float(_received(one).max()) for one in (before, after)]
    return (
        f"What {plural} send to one another {course(old, new, '{:,.0f}')} bytes per token{in_brackets(old, new)}; the "
        f"{kind} that takes in most: {most[0]:,.0f} before, {most[1]:,.0f} after ({_busiest(before):.2f} and "
        f"{_busiest(after):.2f} times the mean)."
    )


def _verdict(report: Mapping[str, Any]) -> str:
    """What to conclude, from the slowest tier that anything crosses: a tier is as slow as who takes in most of it."""
    for key, (kind, plural) in KINDS.items():
        if not _shown(report, key):
            # What crosses nodes is slower than all that is shown of ranks.
            if kind == "node" and report["cluster"]["nodes"] > 1:
                return ""
            continue
        first, second = (float(_received(_pairs(report, side, key)).max()) for side in SIDES)
        if first or second:
            return _compared(kind, plural, first, second)
    return ""


def _compared(kind: str, plural: str, first: float, second: float) -> str:
    if not first:
        return f"Between {plural} nothing was sent before: watch communication."
    share = second / first - 1
    if share < -SAME:
        return f"The {kind} that takes in most takes in {100 * -share:.0f} % less: communication can get faster."
    if share > SAME:
        return f"The {kind} that takes in most takes in {100 * share:.0f} % more: watch communication."
    return (
        f"The {kind} that takes in most takes in as much as before: the plan is no matter for bytes between {plural}."
    )


def _received(pairs: FloatArray) -> FloatArray:
    """What each takes in from others."""
    taken: FloatArray = pairs.sum(axis=0) - np.diagonal(pairs)
    return taken


def _others(pairs: FloatArray) -> float:
    """Bytes to others, in all."""
    return float(_received(pairs).sum())


def _busiest(pairs: FloatArray) -> float:
    taken = _received(pairs)
    return float(taken.max() / taken.mean()) if taken.mean() else 1.0


def _fullest(pairs: FloatArray) -> float:
    apart = pairs - np.diag(np.diagonal(pairs))
    return float(apart.max())
