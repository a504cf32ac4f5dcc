"""The page of `ebsim rebalance`: which control loop, and whether re-planning is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.front import Front, Point
from easybalance_sim.report.choosing import Choice, marked
from easybalance_sim.report.content import Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.provenance import provenance
from easybalance_sim.report.rebalance_words import (
    HOUR_S,
    KEEP,
    advised_of,
    alone_or,
    answer,
    least_moved,
    saved_words,
    tie_of,
    worth_it,
)
from easybalance_sim.report.sections.control_loops import sections
from easybalance_sim.report.words import many, microseconds, percent, size, slug

Run = Mapping[str, Any]


def page(document: Run, made_by: MadeBy) -> Page:
    """Of one run, of its strata (`--by`), or of a search for settings (`--sweep`)."""
    if "strata" in document:
        return _of_strata(document, made_by)
    return _of_settings(document, made_by) if "rows" in document else _of_run(document, made_by)


def _of_run(run: Run, made_by: MadeBy) -> Page:
    best, never = advised_of(run), run["loops"][0]
    return Page(
        title=_title(run),
        subtitle=_subtitle(run),
        headline=_headline(run),
        key=(
            Fact(label="loop", value=best["policy"]),
            Fact(label="saved", value=saved_words(best), note="against never re-planning, pauses counted"),
            Fact(
                label="step P99 as requests see it",
                value=microseconds(best["step_us_with_pauses"]["p99"]),
                note=f"never: {microseconds(never['step_us_with_pauses']['p99'])} "
                f"({percent(best['step_us_with_pauses']['p99'] / never['step_us_with_pauses']['p99'] - 1)})",
            ),
            Fact(label="re-plans", value=f"{best['replans']:,}", note=f"{best['oscillations']:,} back and forth"),
            Fact(label="moved", value=size(best["bytes"]), note=f"{best['moves']:,} experts"),
            Fact(label="pauses", value=f"{best['pause_s']:,.2f} s", note=f"longest {best['longest_pause_s']:,.2f} s"),
        ),
        findings=(),
        sections=sections(run),
        provenance=_provenance(run, made_by),
        notes=tuple(run["notes"]),
    )


def _headline(run: Run) -> Headline:
    word, text = answer(run)
    # What the model cannot tell from never re-planning is nothing to be glad of.
    told = advised_of(run)["saved_s_per_hour"] >= tie_of(run, run["loops"][0]["seconds"])
    return Headline(mood=Mood.GOOD if told and word != KEEP else Mood.NEUTRAL, word=word, text=text, lines=_lines(run))


def _lines(run: Run) -> tuple[str, ...]:
    return (
        f"Seconds are predicted: {run['cost']['label']}.",
        f"A step is its MoE layers {alone_or(run['cost']['other_us'])}.",
    )


def _title(run: Run) -> str:
    return f"When to re-plan: {run['trace']['model'] or 'unnamed model'}"


def _subtitle(run: Run) -> str:
    trace, cluster = run["trace"], run["cluster"]
    served = trace["windows"] - trace["offline_windows"]
    return (
        f"{many(cluster['ranks'], 'rank')} on {many(cluster['nodes'], 'node')}, {cluster['slots_per_rank']} slots "
        f"each, {cluster['profile']} · {served:,} windows served, steps of {trace['tokens_per_step']:,.0f} tokens"
    )


def _provenance(run: Run, made_by: MadeBy) -> tuple[Fact, ...]:
    trace = run["trace"]
    return provenance(
        made_by,
        [
            Fact(
                label="trace",
                value=f"{trace['layers']} layers × {trace['experts']} experts, top-{trace['top_k']}",
                note=f"{trace['windows']:,} windows, the first {trace['offline_windows']:,} for the offline plan",
            ),
            Fact(label="steps served", value=f"{trace['steps']:,.0f}"),
            Fact(label="offline plan", value=run["offline_policy"]),
            Fact(label="seconds", value=run["cost"]["label"]),
        ],
    )


def _of_strata(document: Run, made_by: MadeBy) -> Page:
    strata = document["strata"]
    first = next(iter(strata.values()))
    wins = {name: advised_of(run) for name, run in strata.items()}
    told = "; ".join(f"{name}: {loop['policy']} ({saved_words(loop)})" for name, loop in wins.items())
    worth = any(map(worth_it, wins.values()))
    same = len({loop["policy"] for loop in wins.values()}) == 1
    return Page(
        title=f"{_title(first)}, by {document['by']}",
        subtitle=_subtitle(first),
        headline=Headline(
            mood=Mood.GOOD if worth else Mood.NEUTRAL,
            word="ONE ANSWER" if same else "IT DEPENDS",
            text=f"The loop with the fewest bytes of those that save as much as the best, {told}.",
            lines=_lines(first),
        ),
        key=tuple(Fact(label=name, value=loop["policy"], note=saved_words(loop)) for name, loop in wins.items()),
        findings=(),
        sections=tuple(
            # Names alone are not unique: those in other scripts are the same slug.
            section
            for number, (name, run) in enumerate(strata.items(), 1)
            for section in sections(run, f"{number}_{slug(name)}_", f": {name}")
        ),
        provenance=_provenance(first, made_by),
        notes=tuple(document["notes"]),
    )


def _of_settings(document: Run, made_by: MadeBy) -> Page:
    chosen = document["chosen"]
    name, most = _best_setting(document), _most_saved(document)
    best = chosen[name]
    judged = best["judged_on"]
    worth = worth_it(judged)
    said = f"with {setting_words(best)}" if best["setting"] else "which has no settings"
    text = f"On windows that it was not chosen on, {name}, {said}, saves {saved_words(judged)}"
    text += ", the most." if name == most else f": {most} saves {saved_words(chosen[most]['judged_on'])}, a tie."
    return Page(
        title=f"{_title(document)}, settings",
        subtitle=_subtitle(document),
        headline=Headline(
            mood=Mood.GOOD if worth else Mood.NEUTRAL,
            word="BEST SETTING" if worth else KEEP,
            text=text if worth else f"No setting saves a thousandth of the time. {text}",
            lines=_lines(document),
        ),
        key=(
            Fact(label="loop", value=name, note=setting_words(best)),
            Fact(label="saved", value=saved_words(judged), note="on the second half of the windows"),
            Fact(label="on the half that chose it", value=saved_words(best["chosen_on"])),
            Fact(label="step P99", value=microseconds(judged["step_us"]["p99"])),
            Fact(label="moved", value=size(judged["bytes"]), note=many(judged["replans"], "re-plan")),
        ),
        findings=(),
        sections=(_settings(document),),
        provenance=_provenance(document, made_by),
        notes=tuple(document["notes"]),
    )


def _best_setting(document: Run) -> str:
    """The loop whose setting moves least, of those that save as much as the best but for the model's tie."""
    judged: dict[str, Run] = {name: row["judged_on"] for name, row in document["chosen"].items()}
    whole = document["rows"][0]
    tie = tie_of(document, whole["chosen_on"]["seconds"] + whole["judged_on"]["seconds"])
    best = least_moved(judged.values(), tie)
    return next(name for name, row in judged.items() if row is best)


def _most_saved(document: Run) -> str:
    saved: dict[str, float] = {name: row["judged_on"]["saved_s_per_hour"] for name, row in document["chosen"].items()}
    best = _best_setting(document)
    return max(saved, key=lambda name: (saved[name], name == best))


def setting_words(row: Run) -> str:
    """`min gain 0.005, cooldown 4`; empty for a loop without settings."""
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in row["setting"].items())


def _settings(document: Run) -> Section:
    chosen, rows = document["chosen"], document["rows"]
    lead = "Settings were chosen by the seconds of the first half of the windows and are judged on the second."
    return Section(
        name="settings", title="Settings", lead=lead, blocks=(_halves(chosen), _priced(document), _listed(rows, chosen))
    )


def _halves(chosen: Run) -> Figure:
    kept = [name for name, row in chosen.items() if row["judged_on"]["saved_s_per_hour"] > 0]
    return Figure(
        name="halves",
        title="What the chosen settings save",
        alt="Two bars for the best setting of each loop: seconds saved per hour on the half that chose it, and on the "
        "other one.",
        conclusion=f"On the other half these still save time: {', '.join(kept) or 'none'}.",
        chart=Bars(
            rows=tuple(chosen), row="loop",
            series=tuple(
                Series(name=words, values=tuple(row[half]["saved_s_per_hour"] for row in chosen.values()))
                for half, words in (("chosen_on", "the half that chose"), ("judged_on", "the other half"))
            ),
            value="seconds saved per hour (more is better)", form="{:+,.2f}",
        ),
    )  # fmt: skip


def _priced(document: Run) -> Figure:
    rows = document["rows"]
    best = _best_setting(document)
    hours = max(rows[0]["judged_on"]["seconds"] / HOUR_S, 1e-12)
    curves = []
    for family, taken in document["chosen"].items():
        own = [row for row in rows if row["family"] == family]
        choices = [
            Choice(
                name=family if row == taken else f"{family} {number}",
                price=row["judged_on"]["bytes"] / 1e9 / hours,
                worth=row["judged_on"]["saved_s_per_hour"],
            )
            for number, row in enumerate(own)
        ]
        curves.append((family, _nameless(marked(choices, family if family == best else ""), family)))
    return Figure(
        name="settings_front",
        title="Every setting: saved against moved",
        alt="Settings as points, coloured by loop: GB moved per hour to the right, seconds saved per hour upwards.",
        conclusion=f"The ring is {best}; filled points are beaten by no other setting of their loop.",
        chart=Front(
            curves=tuple(curves), x="GB moved per hour", y="seconds saved per hour (more is better)",
        ),
    )  # fmt: skip


def _nameless(points: tuple[Point, ...], family: str) -> tuple[Point, ...]:
    """Names only of what was chosen, no knees: these are settings of one loop, not choices between loops."""
    return tuple(replace(point, name=point.name if point.name == family else "", knee=False) for point in points)


def _listed(rows: list[Run], chosen: Run) -> Table:
    best = list(chosen.values())
    return Table(
        name="settings_table",
        title="Settings in numbers",
        columns=("", "loop", "setting", "saved s/h, chosen on", "judged on", "step P99, µs", "re-plans", "moved"),
        rows=tuple(
            (
                "→" if row in best else "",
                row["family"],
                setting_words(row),
                f"{row['chosen_on']['saved_s_per_hour']:+,.1f}",
                f"{row['judged_on']['saved_s_per_hour']:+,.1f}",
                f"{row['judged_on']['step_us']['p99']:,.0f}",
                f"{row['judged_on']['replans']:,}",
                size(row["judged_on"]["bytes"]),
            )
            for row in rows
        ),
        note="→ fewest seconds on the first half, by loop",
    )
