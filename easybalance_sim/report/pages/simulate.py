"""The page of `ebsim simulate`: what requests get of a deployment under one plan and under another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.deployment.verdict import NOTHING
from easybalance_sim.report.content import Fact, Headline, MadeBy, Mood, Page
from easybalance_sim.report.provenance import provenance
from easybalance_sim.report.sections.pool import pool_sections
from easybalance_sim.report.sections.served import firm, got
from easybalance_sim.report.words import change, many, milliseconds, percent, rate, share, trusted

Part = Mapping[str, Any]


def page(document: Part, made_by: MadeBy) -> Page:
    """Of a scenario served with the plan before and the plan after."""
    return Page(
        title=document["scenario"]["title"],
        subtitle=_subtitle(document),
        headline=_headline(document),
        key=tuple(_key(document)),
        findings=(),
        sections=(
            got(document),
            firm(document),
            *(section for place in range(len(document["pools"])) for section in pool_sections(document, place)),
        ),
        provenance=_provenance(document, made_by),
        notes=tuple(document.get("notes", ())),
    )


def _subtitle(report: Part) -> str:
    model, load = report["model"], report["workload"]
    pools = ", ".join(f"{pool['gpus']} × {pool['profile'].upper()}" for pool in report["pools"])
    return (
        f"{model['name']}, {model['moe_layers']} MoE layers × {model['experts']} experts on {pools} · "
        f"{load['requests']:,} requests at {rate(load['rate_per_s'])}/s, {load['scored']:,} scored"
    )


def _headline(report: Part) -> Headline:
    lines = (*report["verdict"], *_why(report))
    if report["nothing_served"]:
        text = "Under one of the plans no scored request was answered: times say nothing."
        return Headline(mood=Mood.BAD, word="NOTHING SERVED", text=text, lines=lines)
    if report["plans"]["before"] == report["plans"]["after"] and not any(_changes(report)):
        text = f"The plan after is the plan before, {report['plans']['after']}: requests get the same."
        return Headline(mood=Mood.NEUTRAL, word="NO CHANGE", text=text, lines=lines)
    signs = [0 if abs(one) < NOTHING else 1 if one > 0 else -1 for one in _changes(report)]
    told = " and ".join(
        f"{percent(one)} with {words} communication hidden"
        for one, words in zip(_changes(report), ("no", "all"), strict=True)
    )
    text = f"{report['plans']['after']} against {report['plans']['before']}: mean time of a request {told}; "
    text += f"goodput {' → '.join(rate(report[key]['goodput_per_s']) for key in ('before', 'after'))} requests/s."
    if signs[0] * signs[1] < 0:
        return Headline(mood=Mood.UNSURE, word="IT DEPENDS", text=text, lines=lines)
    if not any(signs):
        return Headline(mood=Mood.NEUTRAL, word="NO DIFFERENCE", text=text, lines=lines)
    good = sum(signs) < 0
    return Headline(mood=Mood.GOOD if good else Mood.BAD, word="FASTER" if good else "SLOWER", text=text, lines=lines)


def _changes(report: Part) -> list[float]:
    """Of the mean end-to-end time, with no and with all communication hidden; 0 where nobody was answered."""
    found = []
    for end in ("serial", "overlapped"):
        old, new = (report["bracket"][key][end]["end_to_end_ms"]["mean"] for key in ("before", "after"))
        found.append(new / old - 1 if old and new is not None else 0.0)
    return found


def _why(report: Part) -> Iterator[str]:
    """What has to be known beside it: the cost model."""
    for pool in report["pools"]:
        role = "" if pool["role"] == "mixed" else f"{pool['role']} pool: "
        yield f"{role}{trusted(pool['cost'])}."


def _key(report: Part) -> Iterator[Fact]:
    before, after, even = (report[key] for key in ("before", "after", "even"))
    yield Fact(
        label="inside the SLO",
        value=f"{share(before['inside_slo'])} → {share(after['inside_slo'])}",
        note=f"ranks alike: {share(even['inside_slo'])}",
    )
    yield Fact(
        label="goodput, requests/s",
        value=f"{rate(before['goodput_per_s'])} → {rate(after['goodput_per_s'])}",
        note=f"ranks alike: {rate(even['goodput_per_s'])}",
    )
    for key, words in (("ttft_ms", "TTFT P99"), ("tpot_ms", "TPOT P99"), ("end_to_end_ms", "end to end P50")):
        point = words[-3:].lower()
        old, new = before[key][point], after[key][point]
        moved = "" if old is None or new is None else change(old, new)
        yield Fact(label=words, value=f"{milliseconds(old)} → {milliseconds(new)}", note=moved)
    lost = sum(pool["kv_lost"]["tokens"] for pool in report["pools"])
    yield Fact(label="KV cache lost to replicas", value=f"{max(lost, 0):,} tokens" if lost > 0 else "none")


def _provenance(report: Part, made_by: MadeBy) -> tuple[Fact, ...]:
    scenario, load, routing = report["scenario"], report["workload"], report["routing"]
    facts = [
        Fact(label="scenario", value=scenario["file"], note=" ".join(scenario["why"].split())),
        Fact(
            label="run",
            value=f"{scenario['duration_s']:g} s after {scenario['warm_up_s']:g} s of warm-up, overlap "
            f"{scenario['overlap']}, seed {scenario['seed']}",
            note=f"requests that came from {load['scored_s'][0]:g} to {load['scored_s'][1]:g} s are scored",
        ),
        Fact(label="arrivals", value=load["source"], note=_lengths(load)),
        Fact(
            label="routing",
            value=routing["source"],
            note=f"{many(routing['serving_requests'], 'request')} of it serve, plans are made from the others",
        ),
    ]
    facts += [
        Fact(
            label=f"seconds, {pool['role']} pool", value=pool["cost"]["label"], note="; ".join(pool["cost"]["reasons"])
        )
        for pool in report["pools"]
    ]
    return provenance(made_by, facts)


def _lengths(load: Part) -> str:
    cached = f", {share(load['cached_share'])} of the prompts cached" if load["cached_share"] else ""
    return (
        f"prompts of {load['prompt_tokens']['mean']:,.0f} tokens, answers of {load['output_tokens']['mean']:,.0f} on "
        f"average{cached}"
    )
