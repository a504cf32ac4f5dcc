"""The page of `ebsim sweep`: how many redundant slots are worth their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.charts.spans import Span, Spans
from easybalance_sim.report.content import Block, Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.provenance import files_fact, provenance
from easybalance_sim.report.sweep_figure import PANELS, chart_of, subject
from easybalance_sim.report.sweep_words import (
    BETTER,
    COMPARED,
    GAINS,
    HEADS,
    NO_GAIN,
    TOO_FEW,
    figures,
    judged_on,
    knee_of,
    no_knee,
    paid,
    place,
    side_by_side,
    slots_by_layer,
    won,
)
from easybalance_sim.report.words import many, microseconds, sentence, size
from easybalance_sim.sweep.knee import SIGMAS

Part = Mapping[str, Any]
MEASURED = {"imbalance": "P99 rank imbalance", "seconds": "P99 MoE time of a step, µs"}


def page(document: Part, made_by: MadeBy) -> Page:
    """Of a sweep over slots, ranks and windows."""
    return Page(
        title=f"How many redundant slots: {document['model']['name'] or 'unnamed model'}",
        subtitle=f"{subject(document)} · dispatch {document['dispatch']}",
        headline=_headline(document),
        key=_key(document),
        findings=(),
        sections=(_curves(document), *_gains(document), _points(document)),
        provenance=_provenance(document, made_by),
        notes=tuple(document.get("notes", ())),
    )


def _headline(document: Part) -> Headline:
    by = document["gain_by"]
    told = [_answer(curve, by) for curve in document["curves"]]
    lines = (
        *told[1:],
        f"Judged by {BETTER[by]}. Seconds are predicted: {document['cost']['label']}.",
        *_seen(document),
    )
    found = [knee_of(curve, by) for curve in document["curves"]]
    slots = {None if point is None else point["extra_slots_per_rank"] for point in found}
    if slots == {None}:
        return Headline(mood=Mood.NEUTRAL, word="NO MORE SLOTS", text=told[0], lines=lines)
    extra = slots.pop() if len(slots) == 1 else None
    word = "IT DEPENDS" if extra is None else f"{many(extra, 'MORE SLOT').upper()}"
    return Headline(mood=Mood.UNSURE if extra is None else Mood.GOOD, word=word, text=told[0], lines=lines)


def _answer(curve: Part, by: str) -> str:
    point = knee_of(curve, by)
    if point is None:
        return f"{place(curve)}: {no_knee(curve, by)}."
    return (
        f"{place(curve)}: {point['slots_per_rank']} slots per rank, {point['extra_slots_per_rank']} more than the "
        f"fewest, {won(curve, point, by)}, for {paid(curve, point)}."
    )


def _seen(document: Part) -> tuple[str, ...]:
    """A warning where nothing is held out."""
    blind = [place(curve) for curve in document["curves"] if not curve["held_out_windows"]]
    return (f"Nothing is held out, figures are those of the fit: {', '.join(blind)}.",) if blind else ()


def _key(document: Part) -> tuple[Fact, ...]:
    """The first curve's answer in numbers."""
    curve, by = document["curves"][0], document["gain_by"]
    point, first = knee_of(curve, by) or curve["points"][0], curve["points"][0]
    old, new = first["step_us"]["p99"], point["step_us"]["p99"]
    uneven = first["rank_imbalance"]["p99"], point["rank_imbalance"]["p99"]
    left = point["kv_tokens_left"]
    return (
        Fact(label="slots per rank", value=str(point["slots_per_rank"]), note=place(curve)),
        Fact(label="step P99", value=microseconds(new), note=f"zero redundancy {microseconds(old)}"),
        Fact(label="imbalance P99", value=f"{uneven[1]:.3f}", note=f"zero redundancy {uneven[0]:.3f}"),
        Fact(label="expert memory per rank", value=size(point["memory_bytes_per_rank"]), note=paid(curve, point)),
        Fact(label="KV tokens left per rank", value="not known" if left is None else f"{left:,}"),
        Fact(label="placement", value=point["policy"]),
    )


def _curves(document: Part) -> Section:
    by = document["gain_by"]
    blocks: list[Block] = [_curve(document, one) for one in (by, *(other for other in PANELS if other != by))]
    if len(document["curves"]) > 1:
        blocks.append(_side_by_side(document))
    return Section(
        name="curves",
        title="What slots buy and cost",
        lead=f"Each point is a number of slots per rank; the {BETTER[by]} decides.{_rule(document)}",
        blocks=tuple(blocks),
    )


def _rule(document: Part) -> str:
    return f" The knee is found among {document['knee_rule']}." if "knee_rule" in document else ""


def _curve(document: Part, by: str) -> Figure:
    told = " ".join(_said(curve, by) for curve in document["curves"])
    best = "; ".join(place(curve) for curve in document["curves"])
    return Figure(
        name=by,
        title=PANELS[by],
        alt=f"Curves for {best}: memory of redundant slots to the right, {PANELS[by]} upwards, points named by slots "
        "per rank. The ring is the answer, the square the knee of this curve.",
        conclusion=told,
        chart=chart_of(document, by),
    )


def _said(curve: Part, by: str) -> str:
    point = knee_of(curve, by)
    if point is None:
        return f"{place(curve)}: no knee, {no_knee(curve, by)}."
    return f"{place(curve)}: knee at {point['slots_per_rank']} slots, {won(curve, point, by)}."


def _side_by_side(document: Part) -> Table:
    return Table(
        name="side_by_side", title="The curves at their answers", columns=HEADS, rows=tuple(side_by_side(document)),
        note=COMPARED,
    )  # fmt: skip


def _gains(document: Part) -> tuple[Section, ...]:
    """Nothing where zero redundancy alone was tried."""
    blocks = [
        _gain(curve, by, number if len(document["curves"]) > 1 else None)
        for number, curve in enumerate(document["curves"], 1)
        for by in PANELS
        if curve["points"][1:]
    ]
    if not blocks:
        return ()
    lead = (
        "What each point saves of the P99 of zero redundancy, and within which chance leaves it: a gain counts when it "
        "exceeds twice its standard error."
    )
    return (Section(name="gains", title="Gain against noise", lead=lead, blocks=tuple(blocks)),)


def _gain(curve: Part, by: str, number: int | None) -> Figure:
    """number: of the curve, where there are several."""
    key, words = GAINS[by], MEASURED[by]
    counted = [point for point in curve["points"][1:] if point["gain"][key]["counts"]]
    where = "" if number is None else f", {place(curve)}"
    unknown = all(point["gain"][key]["noise"] is None for point in curve["points"][1:])
    said = (
        f"More than chance: {', '.join(str(point['slots_per_rank']) for point in counted)} slots."
        if counted
        else sentence(TOO_FEW if unknown else NO_GAIN)
    )
    return Figure(
        name=f"gain_{by}" if number is None else f"gain_{number}_{by}",
        title=f"Saved: {words}{where}",
        alt=f"A line for each number of slots: what it saves of {words} against zero redundancy, from twice the "
        "standard error below to above; left of the dashed line it loses.",
        conclusion=said,
        chart=Spans(
            spans=tuple(_span(point, key) for point in curve["points"][1:]),
            row="slots per rank", value=f"saved of {words} (more is better)", neutral=(0.0, "no difference"),
            form="{:+,.2f}" if by == "seconds" else "{:+.3f}",
        ),
    )  # fmt: skip


def _span(point: Part, key: str) -> Span:
    gain = point["gain"][key]
    wide = SIGMAS * (gain["noise"] or 0.0)
    saved = float(gain["saved"])
    return Span(name=f"{point['slots_per_rank']} slots", low=saved - wide, middle=saved, high=saved + wide)


def _points(document: Part) -> Section:
    tables = tuple(_table(curve, document["gain_by"], number) for number, curve in enumerate(document["curves"], 1))
    lead = "All on traffic that the placements were not made from." if not _seen(document) else _seen(document)[0]
    return Section(name="points", title="All points", lead=lead, blocks=tables)


def _table(curve: Part, by: str, number: int) -> Table:
    knee = knee_of(curve, by)
    rows: list[tuple[str, ...]] = []
    for point in curve["points"]:
        # Without a knee zero redundancy is the answer, the first point.
        mark = "→" if point is (knee or curve["points"][0]) else ""
        rows.append((mark, str(point["slots_per_rank"]), point["policy"], *_cells(point)))
        if "per_layer" in point:
            row = point["per_layer"]
            rows.append(("", slots_by_layer(row), "per layer", *_cells(row)))
    return Table(
        name=f"points_{number}",
        title=f"{place(curve)} on {many(curve['nodes'], 'node')}",
        columns=(
            "", "slots per rank", "placement", "imbalance mean", "imbalance P99", "layer P50, µs", "layer P99, µs",
            "step P99, µs", "expert memory", "KV tokens lost", "KV tokens left",
        ),
        rows=tuple(rows),
        note=f"→ the answer · {judged_on(curve)}",
    )  # fmt: skip


def _cells(row: Part) -> tuple[str, ...]:
    return (
        *figures(row),
        size(row["memory_bytes_per_rank"]),
        *("–" if row[key] is None else f"{row[key]:,}" for key in ("kv_tokens_lost", "kv_tokens_left")),
    )


def _provenance(document: Part, made_by: MadeBy) -> tuple[Fact, ...]:
    trace, split, model = document["trace"], document["split"], document["model"]
    kv = model["kv_bytes_per_token"]
    return provenance(
        made_by,
        [
            files_fact(trace.get("files", ()), trace.get("fingerprint")),
            Fact(
                label="split", value=f"by {split['by']}, {100 * split['held_out']:g} % held out, seed {split['seed']}"
            ),
            Fact(label="profile", value=document["profile"]),
            Fact(label="seconds", value=document["cost"]["label"]),
            Fact(label="KV cache", value=f"{kv:,} bytes per token" if kv else "not known, bytes of experts are shown"),
        ],
    )
