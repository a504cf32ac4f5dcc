"""The page of `ebsim plan` and `ebsim replay`: verdict and findings, then a section per question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from easybalance_sim.gate.verdict import ACCEPTED, NOT_JUDGED, REJECTED
from easybalance_sim.report import plan_words
from easybalance_sim.report.content import Fact, Finding, Headline, MadeBy, Mood, Page, Section
from easybalance_sim.report.provenance import files_fact, provenance
from easybalance_sim.report.sections import (
    choice,
    course,
    gain,
    links,
    places,
    price,
    proof,
    replicas,
    seconds,
    stress,
)
from easybalance_sim.report.sections.sides import SIDES, in_brackets
from easybalance_sim.report.words import band_words, duration, many, sentence, size

SECTIONS: tuple[Callable[[Mapping[str, Any]], Section | None], ...] = (
    gain.section,
    proof.section,
    course.section,
    places.section,
    replicas.section,
    links.section,
    choice.section,
    price.section,
    stress.section,
    seconds.section,
)
MOODS = {ACCEPTED: Mood.GOOD, REJECTED: Mood.BAD}
OF_THE_MACHINE = "compiling kernels"
"""Notes with these words tell of the first run on a machine, not of the plan."""


def page(document: Mapping[str, Any], made_by: MadeBy) -> Page:
    """All of it is in the report; nothing is reckoned anew."""
    return Page(
        title=title(document),
        subtitle=subtitle(document),
        headline=headline(document),
        key=key_facts(document),
        findings=findings(document["verdict"]),
        sections=sections(document),
        provenance=provenance(made_by, sources(document)),
        notes=notes(document),
    )


def title(report: Mapping[str, Any]) -> str:
    """The model and what is compared."""
    model = report["trace"].get("model") or report["model"]["name"] or "unnamed model"
    old, new = (report[side]["policy"] for side in ("baseline", "plan"))
    stays = old == new and not report["migration"]["moves"]
    return f"{model}: {new} stays" if stays else f"{model}: {new} instead of {old}"


def subtitle(report: Mapping[str, Any]) -> str:
    """What was done."""
    done = "plan" if report.get("candidates") else "replay of a plan"
    trace = report["trace"]
    return f"{done} · {trace['layers']} MoE layers × {trace['experts']} experts, top {trace['top_k']}"


def headline(report: Mapping[str, Any]) -> Headline:
    """The verdict and, beside it, the same words as on the terminal."""
    verdict = report["verdict"]
    missed = [finding["criterion"] for finding in verdict["findings"] if not finding["ok"]]
    lines = [f"Missed: {', '.join(missed)}."] if missed else []
    lines += [
        f"{report['plan']['policy']}, {_place(report)}. {sentence(plan_words.judged_on(report))}",
        sentence(plan_words.ground(report)),
        *map(sentence, plan_words.left_empty(report)),
    ]
    return Headline(
        mood=MOODS.get(verdict["status"], Mood.UNSURE),
        word=verdict["status"].replace("_", " ").upper(),
        text=f"{gain.balance(report)} {gain.time(report)}",
        lines=tuple(lines),
    )


def _place(report: Mapping[str, Any]) -> str:
    if report.get("candidates"):
        return plan_words.written(report)
    return str(report["plan_file"])


def key_facts(report: Mapping[str, Any]) -> tuple[Fact, ...]:
    """The few numbers that decide."""
    band, moved = report["cost"]["band_p90"], report["migration"]
    known = not report["model"]["assumed"]
    return (
        _pair(report, "P99 rank imbalance", ("rank_imbalance", "p99"), "{:.3f}"),
        _pair(report, "P99 layer time, µs", ("layer_us", "p99"), "{:.1f}", _how_sure(band, known)),
        _pair(report, "Cross-node bytes per token", ("cross_node_bytes_per_token",), "{:,.0f}"),
        Fact(
            label="Expert memory of a rank",
            value=size(report["plan"]["memory_bytes_per_rank"]) if known else "not known",
            note=f"{size(report['baseline']['memory_bytes_per_rank'])} before" if known else "say --model",
        ),
        Fact(
            label="Migration",
            value=f"{many(moved['moves'], 'expert')}" if moved["moves"] else "none",
            note=f"{size(moved['bytes'])}, {duration(moved['seconds'] or 0.0)}" if moved["moves"] else "",
        ),
        _share(report),
    )  # fmt: skip


def _how_sure(band: float, known: bool) -> str:
    return f"error band {band_words(band)}" if known else "of assumed widths, say --model"


def _share(report: Mapping[str, Any]) -> Fact:
    label, share = "Share of what could be had", report["gain"]["share_of_floor"]
    if share is not None:
        value = f"{100 * share:.0f} %" if share > 0 else "none"
        return Fact(label=label, value=value, note="of the gain of a plan made from the judged traffic")
    if report["gain"]["share_of_possible"] is None:
        return Fact(label=label, value="nothing to gain", note="the baseline is at the bound")
    return Fact(label=label, value="none", note="a plan made from the judged traffic is no better than the baseline")


def _pair(report: Mapping[str, Any], label: str, path: tuple[str, ...], form: str, note: str = "") -> Fact:
    values = []
    for side in SIDES:
        value: Any = report[side]
        for key in path:
            value = value[key]
        values.append(float(value))
    old, new = values
    both = f"{form.format(old)} → {form.format(new)}"
    moved = in_brackets(old, new).strip(" ()") or ("new" if new and not old else "no change")
    return Fact(label=label, value=both, note=", ".join(part for part in (moved, note) if part))


def findings(verdict: Mapping[str, Any]) -> tuple[Finding, ...]:
    """One per criterion, what was missed first."""
    found = [
        Finding(
            criterion=one["criterion"],
            limit=plan_words.judged_value(one["criterion"], one["limit"]),
            observed=plan_words.judged_value(one["criterion"], one["observed"]),
            ok=None if one["note"].startswith(NOT_JUDGED) else one["ok"],
            note=one["note"],
        )
        for one in verdict["findings"]
    ]
    return tuple(sorted(found, key=lambda one: {False: 0, True: 1, None: 2}[one.ok]))


def sections(report: Mapping[str, Any]) -> tuple[Section, ...]:
    """Those that the report has an answer for."""
    found = (make(report) for make in SECTIONS)
    return tuple(one for one in found if one is not None)


def sources(report: Mapping[str, Any]) -> list[Fact]:
    """What the run read and how it was set up."""
    split, cost = report["split"], report["cost"]
    windows = f"{split['window_seconds']:g} s" if split["window_seconds"] else many(split["window_steps"], "step")
    drawn = [f"by {split['by']}"]
    drawn += [f"held out {split['held_out']:g}, seed {split['seed']}"] if "held_out" in split else []
    chosen = [split["phase"]] if split["phase"] else []
    chosen += split["workloads"]
    return [
        files_fact(report["trace"]["files"], report["trace"]["fingerprint"]),
        Fact(
            label="plan file", value=report["plan_file"] or "not written", note=f"fingerprint {report['fingerprint']}"
        ),
        Fact(label="split", value=", ".join(drawn), note=f"only {', '.join(chosen)}" if chosen else ""),
        Fact(label="windows", value="as recorded" if report["trace"]["kind"] == "counts" else f"of {windows}"),
        Fact(label="cluster", value=plan_words.ground(report)),
        Fact(label="seconds", value=f"{cost['all_to_all']}, {cost['phase']}, overlap {cost['overlap']}"),
    ]


def notes(report: Mapping[str, Any]) -> tuple[str, ...]:
    """What the run told, without what it told of the machine."""
    return tuple(note for note in report.get("notes", ()) if OF_THE_MACHINE not in note)
