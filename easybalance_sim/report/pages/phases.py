"""The page of `ebsim plan --per-phase`: a part per phase, and what two plans are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from easybalance_sim.planning.candidates import TIE_FRAC
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Block, Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.pages import plan
from easybalance_sim.report.provenance import provenance
from easybalance_sim.report.words import listed, percent

WORST_FIRST = (Mood.BAD, Mood.UNSURE, Mood.GOOD)


def page(document: Mapping[str, Any], made_by: MadeBy) -> Page:
    """Every name of a part begins with its phase."""
    phases: Mapping[str, Any] = document["phases"]
    first = next(iter(phases.values()))
    sections = [part for phase, report in phases.items() for part in _sections(phase, report)]
    if document["cross"] is not None:
        sections.insert(0, _cross(document["cross"], bool(first["model"]["assumed"])))
    return Page(
        title=_title(phases),
        subtitle=f"a plan per phase · {plan.subtitle(first).partition(' · ')[2]}",
        headline=_headline(phases),
        key=tuple(fact for phase, report in phases.items() for fact in _key(phase, report)),
        findings=tuple(
            replace(one, criterion=f"{phase}: {one.criterion}")
            for phase, report in phases.items()
            for one in plan.findings(report["verdict"])
        ),
        sections=tuple(sections),
        provenance=provenance(made_by, _sources(phases)),
        notes=plan.notes(document),
    )


def _title(phases: Mapping[str, Any]) -> str:
    model = plan.title(next(iter(phases.values()))).partition(": ")[0]
    made = [f"{report['plan']['policy']} for {phase}" for phase, report in phases.items()]
    return f"{model}: {listed(made)}"


def _headline(phases: Mapping[str, Any]) -> Headline:
    """The verdict of each, in the colour of the worst."""
    found = {phase: plan.headline(report) for phase, report in phases.items()}
    words = {one.word for one in found.values()}
    return Headline(
        mood=min((one.mood for one in found.values()), key=WORST_FIRST.index),
        word=words.pop() if len(words) == 1 else ", ".join(f"{phase}: {one.word}" for phase, one in found.items()),
        text=" ".join(f"{phase.capitalize()}: {one.text}" for phase, one in found.items()),
        lines=_lines({phase: one.lines for phase, one in found.items()}),
    )


def _lines(said: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What is said of both phases once, the rest with the name of its phase."""
    both = [line for line in dict.fromkeys(line for lines in said.values() for line in lines) if _of_all(line, said)]
    alone = [f"{phase.capitalize()}: {line}" for phase, lines in said.items() for line in lines if line not in both]
    return (*alone, *both)


def _of_all(line: str, said: Mapping[str, tuple[str, ...]]) -> bool:
    return all(line in lines for lines in said.values())


def _key(phase: str, report: Mapping[str, Any]) -> list[Fact]:
    return [replace(fact, label=f"{phase}: {fact.label}") for fact in plan.key_facts(report)[:3]]


def _sections(phase: str, report: Mapping[str, Any]) -> list[Section]:
    return [
        replace(
            part,
            name=f"{phase}-{part.name}",
            title=f"{phase.capitalize()}: {part.title}",
            blocks=tuple(_named(phase, block) for block in part.blocks),
        )
        for part in plan.sections(report)
    ]


def _named(phase: str, block: Block) -> Block:
    return replace(block, name=f"{phase}_{block.name}", title=f"{phase.capitalize()}: {block.title}")


def _sources(phases: Mapping[str, Any]) -> list[Fact]:
    """What all share once, the rest with the name of its phase."""
    lists = {phase: plan.sources(report) for phase, report in phases.items()}
    found: list[Fact] = []
    for facts in zip(*lists.values(), strict=True):
        if all(fact == facts[0] for fact in facts):
            found.append(facts[0])
        else:
            found += [replace(fact, label=f"{phase}: {fact.label}") for phase, fact in zip(lists, facts, strict=True)]
    return found


def _worth(on: Mapping[str, Any]) -> str:
    """Whether one plan would do, from what the plan of the other phase costs."""
    worth = []
    for traffic, plans in on.items():
        (other,) = (phase for phase in plans if phase != traffic)
        own, foreign = plans[traffic]["layer_us"]["p99"], plans[other]["layer_us"]["p99"]
        worth.append((traffic, foreign / own - 1 if own else 0.0))
    costs = ", ".join(f"{percent(share)} in {traffic}" for traffic, share in worth)
    dear = [traffic for traffic, share in worth if share >= TIE_FRAC]
    cheap = [traffic for traffic, share in worth if share <= -TIE_FRAC]
    said = f"With the plan of the other phase the P99 layer time changes by {costs}: "
    if not dear and not cheap:
        return f"{said}a tie of the cost model (under {100 * TIE_FRAC:.0f} %), one plan will do."
    if not cheap:
        return f"{said}two plans are worth having for {listed(dear)}."
    if len(cheap) == 2:
        return (
            f"{said}each phase is faster with the plan of the other, so neither holds on traffic it was not made from."
        )
    (better,) = (traffic for traffic in on if traffic not in cheap)
    return f"{said}the plan for {better} does for both, the one for {cheap[0]} is the slower one on its own traffic."


def _cross(cross: Mapping[str, Any], assumed: bool) -> Section:
    """Each plan on the traffic of either phase; assumed: the model's widths are."""
    on: Mapping[str, Any] = cross["on"]
    phases = tuple(on)
    told = "Seconds do not tell: the model's widths are not known (say --model)." if assumed else _worth(on)
    series = tuple(
        Series(name=f"plan for {planned}", values=tuple(on[traffic][planned]["layer_us"]["p99"] for traffic in phases))
        for planned in phases
    )
    figure = Figure(
        name="either_traffic",
        title="Each plan on the traffic of either phase",
        alt="Bars of the P99 layer time: "
        + ", ".join(
            f"plan for {planned} on {traffic} {on[traffic][planned]['layer_us']['p99']:.1f} µs"
            for traffic in phases
            for planned in phases
        )
        + ".",
        conclusion=_drawn(on, assumed),
        chart=Bars(
            rows=tuple(f"{traffic} traffic" for traffic in phases), row="traffic", series=series,
            value="P99 layer time, µs", form="{:,.1f}",
        ),
    )  # fmt: skip
    share = f"{cross['differing_experts']:,} of {cross['placed_experts']:,}"
    lead = f"The plans differ in {share} placed experts, ranks renamed where that is free. {told}"
    return Section(name="cross", title="Are two plans worth it?", lead=lead, blocks=(figure, _figures(on)))


def _drawn(on: Mapping[str, Any], assumed: bool) -> str:
    """Which plan is the faster one on the traffic of each phase."""
    if assumed:
        return "Drawn for widths that are only assumed: nothing follows from them."
    said = []
    for traffic, plans in on.items():
        times = {planned: one["layer_us"]["p99"] for planned, one in plans.items()}
        best = min(times, key=times.__getitem__)
        alike = len({f"{one:.1f}" for one in times.values()}) == 1
        said.append(
            f"on {traffic} traffic both take {times[best]:,.1f} µs"
            if alike
            else f"on {traffic} traffic the plan for {best} is the faster one ({times[best]:,.1f} µs)"
        )
    return f"P99 layer time: {', '.join(said)}."


def _figures(on: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            f"{traffic} traffic", planned, one["policy"], f"{one['rank_imbalance']['mean']:.3f}",
            f"{one['rank_imbalance']['p99']:.3f}", f"{one['layer_us']['p99']:.1f}",
            f"{one['active_experts_per_rank']['mean']:.2f}",
        )
        for traffic, plans in on.items()
        for planned, one in plans.items()
    )  # fmt: skip
    head = ("on", "plan for", "policy", "imbalance mean", "imbalance P99", "layer P99, µs", "active experts per rank")
    return Table(name="either_traffic_figures", title="The figures", columns=head, rows=rows)
