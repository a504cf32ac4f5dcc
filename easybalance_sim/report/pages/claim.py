"""The page of a capacity claim (`ebsim offset --scenario`): what each mechanism adds, and on what the claim hangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.claim_words import HOLDS, NOT, answer, calibrated, holds, untabled
from easybalance_sim.report.content import Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.provenance import provenance
from easybalance_sim.report.words import listed, rate, sentence, share

Part = Mapping[str, Any]


def page(document: Part, made_by: MadeBy) -> Page:
    """Of one claim."""
    return Page(
        title=document["title"],
        subtitle=f"{document['parameters'] / 1e9:,.3g} G parameters, {document['active_parameters'] / 1e9:,.3g} G "
        f"active · claimed: {document['claimed_gain']:.2f} times the requests",
        headline=_headline(document),
        key=_key(document),
        findings=(),
        sections=(_ladder(document), _assumed(document)),
        provenance=provenance(
            made_by,
            [
                Fact(label="scenario", value=document["scenario"]),
                Fact(
                    label="seconds",
                    value=calibrated(document),
                    note="; ".join(document["reasons"]),
                ),
            ],
        ),
        notes=tuple(document["notes"]),
    )


def _headline(document: Part) -> Headline:
    word, text = answer(document)
    lines = (*untabled(document["explained"][1:], document), f"seconds {calibrated(document)}")
    mood = {HOLDS: Mood.GOOD, NOT: Mood.BAD}.get(word, Mood.UNSURE)
    return Headline(mood=mood, word=word, text=text, lines=tuple(map(sentence, lines)))


def _key(document: Part) -> tuple[Fact, ...]:
    base, perfect = document["baseline"]["qps"], document["perfect"]["qps"]
    return (
        Fact(label="claimed", value=f"× {document['claimed_gain']:.2f}"),
        Fact(label="lossless", value=f"× {document['lossless_gain']:.2f}"),
        Fact(label="with lossy mechanisms", value=f"× {document['total_gain']:.2f}"),
        Fact(label="ranks loaded alike", value=f"× {perfect / base:.2f}" if base else "–", note="by decree"),
        Fact(label="baseline, requests/s", value=rate(base), note=f"limited by {document['baseline']['limit']}"),
        Fact(
            label="busiest over idlest rank",
            value=f"{document['gap']:.1f} ×",
            note=f"busiest of a layer over mean: {document['layer_peak']:.2f} ×",
        ),
    )


def _ladder(document: Part) -> Section:
    rungs = document["rungs"]
    kept = [rung["mechanism"] for rung in rungs if rung["kept"]]
    claim = document["claimed_gain"]
    reached = next((rung["mechanism"] for rung in rungs if rung["total_gain"] >= claim), None)
    said = f"The claim is reached with {reached}." if reached else "All together do not reach the claim."
    names = tuple(rung["mechanism"] for rung in rungs)
    figure = Figure(
        name="ladder",
        title="Mechanisms, one on top of the other",
        alt=f"Two bars per mechanism, {listed(list(names), 12)}: the gain alone, and with all before it; a dashed line "
        "at the claim.",
        conclusion=f"{said} Kept: {listed(kept, 12) if kept else 'none'}.",
        chart=Bars(
            rows=names, row="mechanism",
            series=(
                Series(name="alone", values=tuple(float(rung["alone_gain"]) for rung in rungs)),
                Series(name="all so far", values=tuple(float(rung["total_gain"]) for rung in rungs)),
            ),
            value="requests over the baseline's (more is better)", bound=(float(claim), f"claimed {claim:.2f}"),
        ),
    )  # fmt: skip
    table = Table(
        name="ladder_table",
        title="Mechanisms in numbers",
        columns=("mechanism", "alone, requests/s", "gain", "on top", "all so far", "changed", "kept"),
        rows=tuple(
            (
                rung["mechanism"], rate(rung["alone"]["qps"]), f"{rung['alone_gain']:.2f} ×", f"{rung['added']:.3f} ×",
                f"{rung['total_gain']:.2f} ×", "–" if rung["lossless"] else share(rung["alone_changed"]),
                "yes" if rung["kept"] else "left out again",
            )
            for rung in rungs
        ),
        note="changed: of the router's choices",
    )  # fmt: skip
    lead = f"From {rate(document['baseline']['qps'])} requests/s on."
    return Section(name="mechanisms", title="What each mechanism adds", lead=lead, blocks=(figure, table))


def _assumed(document: Part) -> Section:
    found, claim = document["assumptions"], document["claimed_gain"]
    names = tuple(one["name"] for one in found)
    sure = [one["name"] for one in found if one["holds_lossless"]]
    figure = Figure(
        name="assumptions",
        title="On what the claim hangs",
        alt="Three bars per assumption: the gain with lossless mechanisms, with all, and with ranks loaded alike; a "
        "dashed line at the claim.",
        conclusion=f"Lossless mechanisms reach the claim under {len(sure)} of {len(found)} assumptions.",
        chart=Bars(
            rows=names, row="assumption",
            series=tuple(
                Series(name=words, values=tuple(float(one[key]) for one in found))
                for key, words in (("lossless", "lossless"), ("everything", "lossy too"), ("perfect", "ranks alike"))
            ),
            value="requests over the baseline's (more is better)", bound=(float(claim), f"claimed {claim:.2f}"),
        ),
    )  # fmt: skip
    table = Table(
        name="assumptions_table",
        title="Assumptions in numbers",
        columns=("assumption", "requests/s before", "gap", "a layer", "lossless", "lossy too", "ranks alike", "holds"),
        rows=tuple(
            (
                one["name"], rate(one["baseline"]["qps"]), f"{one['gap']:.1f} ×", f"{one['layer_peak']:.2f} ×",
                *(f"{one[key]:.3f} ×" for key in ("lossless", "everything", "perfect")),
                holds(one),
            )
            for one in found
        ),
    )  # fmt: skip
    lead = "The same traffic, read in other ways that the claim leaves open."
    return Section(name="assumed", title="Assumptions", lead=lead, blocks=(figure, table))
