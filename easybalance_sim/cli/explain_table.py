"""The answers of `ebsim explain` as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from easybalance_sim.cli.layout import aligned, filled, kept, worded

SHOWN_EXPERTS, SHOWN_LAYERS, SHOWN_COMPANY, SHOWN_RANKS = 12, 8, 4, 8

Row = Mapping[str, Any]


def of(answer: Row) -> str:
    """Any of the answers, under a line that says which plan and load it is about."""
    kind = str(answer["of"])
    parts = {"overview": _overview, "layer": _layer, "rank": _rank, "expert": _expert}[kind](answer[kind], answer)
    return "\n\n".join((_head(answer), *parts))


def _head(answer: Row) -> str:
    plan, load = answer["plan"], answer["load"]
    line = f"{plan['policy']}, {plan['layers']} layers × {plan['experts']} experts in {plan['slots']} slots on "
    line += f"{plan['ranks']} ranks"
    if load is None:
        return f"{filled(line)}\nload: not known, say --trace"
    whose = "that the plan was made from" if load["made_from"] else "of another trace"
    return f"{filled(line)}\nload: {load['windows']:,} windows {whose}; replicas share evenly"


def _overview(found: Row, answer: Row) -> list[str]:
    counts = [kept(f"{one['experts']:,} with {one['replicas']}") for one in found["replicas"]]
    parts = [filled(f"replicas of an expert: {', '.join(counts)}")]
    if found["experts"]:
        parts.append("most replicated\n" + _experts(found["experts"], with_layer=True))
    shown = found["layers"][:SHOWN_LAYERS]
    left = len(found["layers"]) - len(shown)
    more = f"\n… {left} more" if left else ""
    parts.append("rank imbalance by layer, most excess first\n" + _layers(shown) + more)
    if found["judged"] is not None:
        names = {"baseline": "baseline", "plan": "this plan", "floor": "made from that traffic", "lower_bound": "bound"}
        told = [f"{names[name]} {value:.3f}" for name, value in found["judged"].items()]
        parts.append(filled(f"on held-out traffic, mean: {', '.join(told)}"))
    return parts


def _layers(layers: Sequence[Row]) -> str:
    rows: list[tuple[str, ...]] = [("layer", "reached", "bound", "held out: baseline", "plan", "own floor")]
    for one in layers:
        held = one["held_out"]
        rows.append(
            (
                str(one["layer"]),
                *map(_ratio, (one["rank_imbalance"], one["lower_bound"])),
                *(_ratio(held[name]) for name in ("baseline", "plan", "floor")),
            )
        )
    return aligned(rows)


def _layer(found: Row, answer: Row) -> list[str]:
    ranks = [("rank", "node", "load/mean", "experts, most load first")]
    ranks += [(str(one["rank"]), str(one["node"]), _ratio(one["over_mean"]), _company(one)) for one in found["ranks"]]
    left = len(found["experts"]) - SHOWN_EXPERTS
    more = f"\n… {left} more" if left > 0 else ""
    return [
        f"layer {found['layer']}" + _imbalance(found["rank_imbalance"], found["lower_bound"]),
        _experts(found["experts"][:SHOWN_EXPERTS], with_layer=False) + more,
        worded(ranks),
    ]


def _rank(found: Row, answer: Row) -> list[str]:
    layers = found["layers"]
    line = f"rank {layers[0]['rank']} on node {layers[0]['node']}: {found['slots']} slots in a layer"
    if found["over_mean"] is not None:
        line += (
            f", load {found['over_mean']:.3f} of the mean rank, the busiest in {found['busiest_in']} of {len(layers)}"
        )
    rows = [("layer", "load/mean", "place", "experts, most load first")]
    rows += [(str(one["layer"]), _ratio(one["over_mean"]), _number(one["place"]), _company(one)) for one in layers]
    return [filled(line), worded(rows)]


def _expert(found: Row, answer: Row) -> list[str]:
    parts = [_what(found, answer["plan"])]
    rows = [("rank", "node", "load/mean", "place", "beside it, most load first")]
    rows += [
        (str(one["rank"]), str(one["node"]), _ratio(one["over_mean"]), _number(one["place"]), _company(one))
        for one in found["holders"]
    ]
    parts.append(worded(rows))
    return [*parts, _what_if(found)] if found["rank_imbalance"] is not None else parts


def _what(found: Row, plan: Row) -> str:
    """The reason in words."""
    lines = [f"layer {found['layer']}, expert {found['expert']}: {_held(found['ranks'])}"]
    if found["share"] is not None:
        lines.append(
            f"{100 * found['share']:.2f} % of the layer's load, {found['over_mean']:.2f} of a mean expert's: place "
            f"{found['place']} of {plan['experts']}"
        )
        lines.append(f"in its busiest windows (P99) {found['peak_over_mean']:.2f}: place {found['peak_place']}")
        if "search" in plan["policy"] and found["replicas"] > 1:
            lines[-1] += "; searches even out the tail over windows, not the mean"
        each = f", each replica {found['replica_fills_ranks']:.2f}" if found["replicas"] > 1 else ""
        lines.append(f"on one rank it would be {found['fills_ranks']:.2f} of a mean rank's load{each}")
    return "\n".join(map(filled, lines))


def _what_if(found: Row) -> str:
    """One replica fewer and one more."""
    now = found["rank_imbalance"]
    rows = [
        ("busiest over mean", "mean", "P99", ""),
        ("as it is", _ratio(now["mean"]), _ratio(now["p99"]), ""),
    ]
    fewer, more = found["one_fewer"], found["one_more"]
    if fewer is not None:
        told = f"its slot on rank {fewer['rank']} to expert {fewer['comes']}"
        rows.append(("one replica fewer", *_changed(fewer), told))
    if more is not None:
        told = f"on rank {more['rank']}, in place of expert {more['leaves']}"
        rows.append(("one replica more", *_changed(more), told))
    rows.append(("bound of these slots", _ratio(found["lower_bound"]), "", ""))
    absent = [] if fewer is not None else ["none fewer: every expert needs one"]
    absent += [] if more is not None else ["none more: it is on every rank, or no other expert can spare a replica"]
    return "\n".join((worded(rows), *absent))


def _changed(change: Row) -> tuple[str, str]:
    after = change["rank_imbalance"]
    return f"{after['mean']:.3f} ({100 * change['growth']:+.1f} %)", _ratio(after["p99"])


def _experts(experts: Sequence[Row], *, with_layer: bool) -> str:
    rows: list[tuple[str, ...]] = [
        ("layer", "expert", "replicas", "load/mean", "place", "in busy windows", "place", "ranks")
    ]
    for one in experts:
        load = [_ratio(one["over_mean"]), _number(one["place"]), _ratio(one["peak_over_mean"])]
        facts = (str(one["layer"]), str(one["expert"]), str(one["replicas"]), *load, _number(one["peak_place"]))
        rows.append((*facts, _listed(one["ranks"])))
    return worded(rows if with_layer else [row[1:] for row in rows])


def _company(rank: Row) -> str:
    """Experts of a rank, a replicated one with ×n, and the share of a mean rank that they fill there."""
    told = []
    for one in rank["experts"][:SHOWN_COMPANY]:
        copies = f"×{one['replicas']}" if one["replicas"] > 1 else ""
        share = "" if one["replica_fills_ranks"] is None else f" {100 * one['replica_fills_ranks']:.0f} %"
        told.append(f"{one['expert']}{copies}{share}")
    left = len(rank["experts"]) - len(told)
    return ", ".join(told) + (f" +{left}" if left > 0 else "")


def _imbalance(mean: float | None, bound: float | None) -> str:
    if mean is None or bound is None:
        return ""
    return f": rank imbalance {mean:.3f}, no plan with these slots under {bound:.3f}"


def _listed(ranks: Sequence[int]) -> str:
    left = len(ranks) - SHOWN_RANKS
    return ", ".join(map(str, ranks[:SHOWN_RANKS])) + (f" +{left}" if left > 0 else "")


def _held(ranks: Sequence[int]) -> str:
    return f"1 replica, on rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} replicas, on ranks {_listed(ranks)}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _number(value: int | None) -> str:
    return "–" if value is None else str(value)
