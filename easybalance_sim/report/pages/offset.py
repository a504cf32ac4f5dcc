"""The page of `ebsim offset`: every mechanism against rank imbalance, with what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.content import Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.front_figure import TITLES, chart_of, front_by
from easybalance_sim.report.offset_words import (
    AXIS,
    FIRST,
    KEEP,
    LOSSY,
    answer,
    balance_words,
    best_lossless,
    in_force,
)
from easybalance_sim.report.provenance import files_fact, provenance
from easybalance_sim.report.sections.mechanisms import part_sections
from easybalance_sim.report.words import listed, many, share

Part = Mapping[str, Any]
MOODS = {LOSSY: Mood.UNSURE, KEEP: Mood.NEUTRAL, FIRST: Mood.GOOD}


def page(document: Part, made_by: MadeBy) -> Page:
    """Of the mechanisms that were asked for, on one trace."""
    plan, trace = document["plan"], document["trace"]
    return Page(
        title=f"Balance and its price: {trace['model'] or 'unnamed model'}",
        subtitle=f"{plan['policy']} on {many(plan['ranks'], 'rank')}, {plan['slots']} slots in each of "
        f"{trace['layers']} layers × {trace['experts']} experts",
        headline=_headline(document),
        key=tuple(_key(document)),
        findings=(),
        sections=(_front(document), *part_sections(document)),
        provenance=_provenance(document, made_by),
        notes=tuple(document.get("notes", ())),
    )


def _points(report: Part, axis: str = AXIS) -> list[Part]:
    """Rows of what nothing beats, most even first."""
    best = {point["name"] for point in front_by(report, axis)["points"]}
    rows = [row for row in report["front"]["rows"] if row["name"] in best]
    return sorted(rows, key=lambda row: float(row["balance"][axis]))


def _knee(report: Part, axis: str = AXIS) -> Part | None:
    knee = front_by(report, axis)["knee"]
    return next((row for row in report["front"]["rows"] if row["name"] == knee), None)


def _headline(report: Part) -> Headline:
    knee, (word, text) = _knee(report), answer(report)
    lines = []
    if report["feedback"] is not None:
        lines.append(f"Will a router offset help? {report['feedback']['predictability']['verdict']}.")
    if knee is not None:
        lines.append(f"Of what changes routing the knee is {knee['name']}: {balance_words(knee)} at {_loss(knee)}.")
    lines.append("Lossy mechanisms are priced by proxies calibrated on a 14 M model, and never written into a plan.")
    return Headline(mood=MOODS[word], word=word, text=text, lines=tuple(lines))


def _loss(row: Part) -> str:
    if row["lossless"]:
        return "no loss"
    band = row["price"]["loss_nats"]
    beyond = ", beyond what was measured" if band["beyond"] else ""
    return f"{band['low_nats'] * 1e3:.1f} to {band['high_nats'] * 1e3:.1f} thousandths of a nat{beyond}"


def _key(report: Part) -> list[Fact]:
    facts = []
    for label, row in (
        ("plan in force", in_force(report)), ("best lossless", best_lossless(report)), ("knee", _knee(report)),
    ):  # fmt: skip
        if row is not None:
            note = f"{row['name']}, {_loss(row)}"
            facts.append(Fact(label=f"{label}, step mean", value=f"{row['balance'][AXIS]:.3f}", note=note))
    judged = report["judged"]
    facts.append(Fact(label="judged on", value=f"{judged['steps']:,} steps", note=f"{judged['tokens']:,} tokens"))
    helps = report["feedback"] and report["feedback"]["predictability"]["helps"]
    if helps is not None:
        facts.append(Fact(label="router offsets help single steps", value="yes" if helps else "no"))
    return facts


def _front(report: Part) -> Section:
    names = [row["name"] for row in _points(report)]
    lead = (
        "Filled marks are beaten by nothing in balance, loss and memory; time that a mechanism takes is not counted. "
        f"By the mean these are {listed(names, 12)}."
    )
    return Section(
        name="front", title="Balance and its price", lead=lead,
        blocks=(*(_figure(report, axis) for axis in TITLES), _table(report)),
    )  # fmt: skip


def _figure(report: Part, axis: str) -> Figure:
    best, knee = _points(report, axis), _knee(report, axis)
    said = (
        f"Most even of what nothing beats: {best[0]['name']} ({best[0]['balance'][axis]:.3f}, {_loss(best[0])})."
        if best
        else "Nothing can be deployed."
    )
    said += f" The knee is {knee['name']}{_beyond(best, knee, axis)}." if knee is not None else ""
    return Figure(
        name=f"front_{axis}",
        title=f"Balance against loss, {TITLES[axis]}",
        alt="Mechanisms as marks: loss in thousandths of a nat to the right, busiest over mean rank upwards; lines are "
        f"bands of the loss. Beaten by nothing: {listed([row['name'] for row in best], 12)}.",
        conclusion=said,
        chart=chart_of(report, axis),
    )


def _beyond(best: list[Part], knee: Part, axis: str) -> str:
    """What the next lossy row of the front reaches, of those with as many slots as the knee."""
    paid = float(knee["price"]["loss_nats"]["high_nats"])
    dearer = [row for row in best if row["slots"] == knee["slots"] and row["price"]["loss_nats"]["high_nats"] > paid]
    if not dearer:
        return ""
    after = min(dearer, key=lambda row: float(row["price"]["loss_nats"]["high_nats"]))
    reached = " to ".join(f"{row['balance'][axis]:.3f}" for row in (knee, after))
    return f"; {after['name']} goes on from {reached}, at {_loss(after)}"


def _table(report: Part) -> Table:
    best = {row["name"] for axis in TITLES for row in _points(report, axis)}
    remarks = dict.fromkeys(row["remark"] for row in report["front"]["rows"] if row["remark"])
    return Table(
        name="mechanisms",
        title="Mechanisms in numbers",
        columns=(
            "", "mechanism", "step mean", "step P99", "window mean", "window P99", "loss, mnat", "changed",
            "top-1 lost", "slots", "settles", "sees",
        ),
        rows=tuple(_row(row, best) for row in report["front"]["rows"]),
        note=" · ".join(("* nothing beats it, by mean or P99", *(f"† {remark}" for remark in remarks))),
    )  # fmt: skip


def _row(row: Part, best: set[str]) -> tuple[str, ...]:
    balance, price = row["balance"], row["price"]
    band = price["loss_nats"]
    mark = ("*" if row["name"] in best else "") + ("†" if row["remark"] else "")
    return (
        mark,
        f"{row['name']}{' (floor)' if row['floor'] else ''}",
        f"{balance['step_mean']:.3f}",
        f"{balance['step_p99']:.2f}",
        f"{balance['window_mean']:.3f}",
        f"{balance['window_p99']:.2f}",
        "0" if row["lossless"] else f"{band['low_nats'] * 1e3:.1f} to {band['high_nats'] * 1e3:.1f}",
        "" if row["lossless"] else share(price["changed"] + price["dropped"]),
        "" if row["lossless"] else share(price["top1_lost"]),
        str(row["slots"]),
        {True: "yes", False: "no", None: "not judged"}[row["stable"]],
        row["sensor"],
    )


def _provenance(report: Part, made_by: MadeBy) -> tuple[Fact, ...]:
    trace, past, judged, plan, cost = (report[key] for key in ("trace", "past", "judged", "plan", "cost"))
    return provenance(
        made_by,
        [
            files_fact(trace["files"], trace["fingerprint"]),
            Fact(
                label="placements made from",
                value=", ".join(past["files"]),
                note=f"steps {past['first_step']:,} to {past['last_step']:,}",
            ),
            Fact(
                label="judged on",
                value=f"steps {judged['first_step']:,} to {judged['last_step']:,}",
                note=f"after {judged['warm_up_steps']} of warm-up, {judged['step_ms']:.3g} ms a step",
            ),
            Fact(label="plan", value=plan["file"] or plan["policy"], note=plan["fingerprint"] or ""),
            Fact(
                label="seconds",
                value=cost["profile"],
                note="calibrated" if cost["calibrated"] else f"not calibrated: {'; '.join(cost['reasons'])}",
            ),
        ],
    )
