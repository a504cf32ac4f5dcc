"""The page of `ebsim rollout`: whether a plan can be taken into service, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Block, Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.provenance import provenance
from easybalance_sim.report.rollout_words import FITS, STATUS, WAYS, group, meant, named, replaced
from easybalance_sim.report.words import duration, many, sentence, size, slug

Part = Mapping[str, Any]
MOODS = {"safe": Mood.GOOD, "unsafe": Mood.BAD, "does-not-fit": Mood.BAD, "unfinished": Mood.UNSURE}
MOST_RANKS, MOST_EVENTS = 64, 60
"""Bars of ranks, and events of a history, that are shown; the JSON report has all."""


def page(document: Part, made_by: MadeBy) -> Page:
    """Of one rollout."""
    facts, outcome = document["facts"], document["outcome"]
    return Page(
        title=f"Taking a plan into service: {document['plan']['model'] or 'unnamed model'}",
        subtitle=f"{named(document['plan'])} replaces {replaced(document)}",
        headline=Headline(
            mood=MOODS[outcome["status"]],
            word=STATUS[outcome["status"]],
            text=sentence(outcome["reason"]),
            lines=_lines(document),
        ),
        key=_key(facts),
        findings=(),
        sections=(_loading(facts), _orders(document)),
        provenance=provenance(
            made_by,
            [
                Fact(label="plan", value=document["plan"]["file"], note=document["plan"]["fingerprint"]),
                Fact(label="replaces", value=replaced(document)),
                Fact(label="random orders", value=f"seed {document['walks']['seed']}"),
            ],
        ),
        notes=tuple(document["notes"]),
    )


def _fault(one: Part) -> str:
    return "no fault" if one["fault"] == "none" else str(one["fault"])


def _lines(document: Part) -> tuple[str, ...]:
    broken = [_fault(one) for one in document["explored"] if one["violation"]]
    lines = [*map(sentence, meant(document)), *([f"Broken under: {', '.join(broken)}."] if broken else [])]
    walks = document["walks"]
    if walks["count"]:
        found = f"breaks: {walks['violation']}" if walks["violation"] else "none breaks an invariant"
        lines.append(f"{many(walks['count'], 'random order')} of all {walks['ranks']} ranks: {found}.")
    return tuple(lines)


def _key(facts: Part) -> tuple[Fact, ...]:
    best = facts["best_way"]
    way = facts["ways"].get(best) if best else None
    moved = None if facts["expert_bytes"] is None else facts["experts"] * facts["expert_bytes"]
    found = [
        Fact(
            label="experts to load",
            value=f"{facts['experts']:,}",
            note=f"by {facts['ranks_that_load']} of {many(facts['ranks'], 'rank')}, {facts['cross_node_experts']:,} "
            "over the network",
        ),
        Fact(label="bytes", value=size(moved)),
    ]
    if way is not None:
        found += [
            Fact(label="way to load", value=WAYS[best], note=f"staging {size(way['staging_bytes'])}"),
            Fact(label="loading", value=_seconds(way["load_s"])),
            Fact(label="serving stops", value=_seconds(way["pause_s"])),
        ]
    return tuple(found)


def _seconds(value: float | None) -> str:
    return "not known" if value is None else duration(value)


def _loading(facts: Part) -> Section:
    fits = [WAYS[name] for name, way in facts["ways"].items() if way["fits"]]
    lead = (
        f"These ways fit into memory: {', '.join(fits)}."
        if fits
        else "No way is known to fit into memory."
        if any(way["fits"] is None for way in facts["ways"].values())
        else "No way fits into memory."
    )
    blocks: list[Block] = [_ways(facts)]
    if facts["experts"]:
        blocks.insert(0, _per_rank(facts))
    return Section(name="loading", title="What is loaded, and how", lead=lead, blocks=tuple(blocks))


def _per_rank(facts: Part) -> Figure:
    counts = facts["experts_per_rank"]
    shown = sorted(sorted(range(len(counts)), key=lambda rank: (-counts[rank], rank))[:MOST_RANKS])
    most = max(range(len(counts)), key=lambda rank: int(counts[rank]))
    left = len(counts) - len(shown)
    return Figure(
        name="loads",
        title="Experts that each rank loads",
        alt=f"Bars of the experts that {many(len(shown), 'rank')} load"
        + (f", {left} with fewer left out." if left else "."),
        conclusion=f"Rank {most} loads most, {counts[most]:,} of {facts['experts']:,} experts.",
        chart=Bars(
            rows=tuple(f"rank {rank}" for rank in shown), row="rank",
            series=(Series(name="experts", values=tuple(counts[rank] for rank in shown)),), value="experts to load",
            form="{:,.0f}",
        ),
    )  # fmt: skip


def _ways(facts: Part) -> Table:
    return Table(
        name="ways",
        title="Ways to load",
        columns=("", "way", "staging", "left for the rest", "fits", "loading", "serving stops", "publications"),
        rows=tuple(
            (
                "→" if name == facts["best_way"] else "", WAYS[name], size(way["staging_bytes"]),
                size(way["left_bytes"]), FITS[way["fits"]],
                _seconds(way["load_s"]), _seconds(way["pause_s"]), f"{way['publications']:,}",
            )
            for name, way in facts["ways"].items()
        ),
    )  # fmt: skip


def _orders(document: Part) -> Section:
    protocol, explored = document["protocol"], document["explored"]
    lead = (
        f"A group of {many(protocol['ranks'], 'rank')} went through every order of events {group(protocol)}, at most "
        f"{many(protocol['in_flight'], 'step')} in flight."
    )
    blocks: list[Block] = [_states(explored), _explored(explored)]
    blocks += [_history(_fault(one), one) for one in explored if one["violation"]]
    if document["walks"]["violation"]:
        blocks.append(_history("random order", document["walks"]))
    return Section(name="orders", title="Every order of events", lead=lead, blocks=tuple(blocks))


def _states(explored: list[Part]) -> Figure:
    broken = [_fault(one) for one in explored if one["violation"]]
    unfinished = [_fault(one) for one in explored if not one["finished"] and not one["violation"]]
    said = f"An invariant breaks under {', '.join(broken)}." if broken else "No order of events breaks an invariant."
    said += f" Not all orders were seen under {', '.join(unfinished)}." if unfinished else ""
    names = tuple(_fault(one) for one in explored)
    return Figure(
        name="states",
        title="States that were seen",
        alt=f"Bars of the states of the small group under each fault: {', '.join(names)}.",
        conclusion=said,
        chart=Bars(
            rows=names, row="fault", series=(Series(name="states", values=tuple(one["states"] for one in explored)),),
            value="states", form="{:,.0f}",
        ),
    )  # fmt: skip


def _explored(explored: list[Part]) -> Table:
    names = ("ranks", "ranks_that_load", "steps", "states", "transitions", "settled", "published")
    return Table(
        name="explored",
        title="Faults in numbers",
        columns=("fault", "ranks", "load", "steps", "states", "transitions", "settled", "on the new plan", "found"),
        rows=tuple(
            (
                _fault(one), *(f"{one[name]:,}" for name in names),
                one["violation"] or ("nothing breaks" if one["finished"] else "not finished"),
            )
            for one in explored
        ),
    )  # fmt: skip


def _history(where: str, one: Part) -> Table:
    events = one["history"]
    first = max(0, len(events) - MOST_EVENTS)
    return Table(
        name=f"history_{slug(where)}",
        title=f"How it breaks: {where}",
        columns=("", "event"),
        rows=tuple((f"{number}.", event) for number, event in enumerate(events[first:], first + 1)),
        note=one["violation"] + (f" · {first} events before" if first else ""),
    )
