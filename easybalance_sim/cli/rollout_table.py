"""The report of a rollout as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.layout import aligned, filled, noted
from easybalance_sim.report.rollout_words import FITS, STATUS, WAYS, group, meant, named, replaced
from easybalance_sim.report.words import amount

SHOWN_RANKS, SHOWN_EVENTS = 16, 40


def of_rollout(report: Mapping[str, Any]) -> str:
    """The text that `ebsim rollout` prints."""
    outcome = report["outcome"]
    verdict = f"{STATUS[outcome['status']]}: {outcome['reason']}"
    parts = [
        "\n".join(map(filled, (verdict, _plans(report), *meant(report)))),
        _loads(report["facts"]),
        _ways(report["facts"]),
        _explored(report),
        *(_history(f"under {one['fault']}", one) for one in report["explored"] if one["violation"]),
        _walks(report["walks"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _plans(report: Mapping[str, Any]) -> str:
    return f"{named(report['plan'])} replaces {replaced(report)}"


def _loads(facts: Mapping[str, Any]) -> str:
    size = facts["expert_bytes"]
    total = f", {_size(facts['experts'] * size)}" if size else ""
    line = filled(
        f"{facts['ranks_that_load']} of {facts['ranks']} ranks load {facts['experts']:,} experts{total}; "
        f"{facts['cross_node_experts']:,} of them over the network"
        + ("; the others are ready at once" if facts["ranks_that_load"] < facts["ranks"] else "")
    )
    if not facts["experts"]:
        return line
    counts = facts["experts_per_rank"]
    fullest = sorted(range(len(counts)), key=lambda rank: (-counts[rank], rank))[:SHOWN_RANKS]
    rows = [("rank", "experts", "MB"), *(_rank(rank, counts[rank], size) for rank in sorted(fullest))]
    left = len(counts) - len(fullest)
    return "\n".join([line, aligned(rows), *([f"… {left} ranks with less (--format json)"] if left else [])])


def _rank(rank: int, experts: int, size: int | None) -> tuple[str, str, str]:
    return str(rank), f"{experts:,}", f"{experts * size / 1e6:,.1f}" if size else "–"


def _ways(facts: Mapping[str, Any]) -> str:
    head = (
        "way to load",
        "staging",
        "left for KV cache and all else",
        "fits",
        "loading",
        "serving stops",
        "times published",
    )
    rows = [head, *(_way(name, way, name == facts["best_way"]) for name, way in facts["ways"].items())]
    return aligned(rows)


def _way(name: str, way: Mapping[str, Any], best: bool) -> tuple[str, ...]:
    return (
        f"{'→' if best else ' '} {WAYS[name]}",
        _size(way["staging_bytes"]),
        _size(way["left_bytes"]),
        FITS[way["fits"]],
        _seconds(way["load_s"]),
        _seconds(way["pause_s"]),
        f"{way['publications']:,}",
    )


def _size(size: float | None) -> str:
    if size is None:
        return "–"
    return f"{size / 1e9:,.1f} GB" if abs(size) >= 1e9 else f"{size / 1e6:,.1f} MB"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value * 1e3:,.3f} ms"


def _explored(report: Mapping[str, Any]) -> str:
    protocol, explored = report["protocol"], report["explored"]
    usual = _sizes(explored[0]) if explored else ""
    rows = [("", "fault", "states", "transitions", "settled", "on the new plan"), *map(_row, explored)]
    title = f"every order of events of {usual}, {group(protocol)}, at most {protocol['in_flight']} in flight"
    notes = ["", *(_remark(one, usual) for one in explored)]
    return "\n".join([filled(title), noted(rows, notes, left=2), "ok: no order of events breaks an invariant"])


def _sizes(one: Mapping[str, Any]) -> str:
    """Of the group that was explored."""
    steps = f"{one['steps']} step{'s' * (one['steps'] != 1)}"
    return f"{one['ranks']} ranks ({one['ranks_that_load']} load) in {steps}"


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    mark = "NO" if one["violation"] else "ok" if one["finished"] else "–"
    return mark, one["fault"], *(amount(one[name]) for name in ("states", "transitions", "settled", "published"))


def _remark(one: Mapping[str, Any], usual: str) -> str:
    """What sets a fault apart from the others."""
    finding = one["violation"] or ("" if one["finished"] else "not finished")
    return "; ".join(filter(None, (finding, _sizes(one) if _sizes(one) != usual else "")))


def _history(where: str, one: Mapping[str, Any]) -> str:
    events, first = one["history"], max(0, len(one["history"]) - SHOWN_EVENTS)
    skipped = [f"  … {first} events before"] if first else []
    numbered = enumerate(events[first:], start=first + 1)
    shown = [filled(f"{number}. {event}", first="  ", then="     ") for number, event in numbered]
    return "\n".join([filled(f"{where}: {one['violation']}"), *skipped, *shown])


def _walks(walks: Mapping[str, Any]) -> str:
    if not walks["count"]:
        return ""
    if walks["violation"]:
        return _history(f"random order of all {walks['ranks']} ranks, --seed {walks['violating_seed']}", walks)
    return filled(
        f"random orders of all {walks['ranks']} ranks: {walks['count']} walks, {walks['events']:,} events, "
        f"{walks['faults']} faults, {walks['published']} ended on the new plan; none breaks an invariant"
    )
