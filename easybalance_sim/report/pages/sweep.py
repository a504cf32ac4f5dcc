"""The page of `ebsim sweep`: how many redundant slots are worth their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.charts.spans import Span, Spans
from easybalance_sim.report.content import Block, Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.numbers import microseconds, slug
from easybalance_sim.report.provenance import files_fact, provenance
from easybalance_sim.report.sweep_figure import PANELS, chart_of, subject
from easybalance_sim.report.words import change, many, size

Part = Mapping[str, Any]
GAINS = {"imbalance": ("imbalance_p99", "P99 rank imbalance"), "seconds": ("step_us_p99", "P99 MoE time of a step, µs")}
BETTER = {"seconds": "MoE time of a step", "imbalance": "rank imbalance"}
SIGMAS = 2.0
"""Times its standard error that a gain must exceed to count."""


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


def _knee(curve: Part, by: str) -> Part | None:
    """The point at the knee, None where zero redundancy is best."""
    found = curve["knee"][by]
    point: Part | None = None if found is None else curve["points"][found["point"]]
    return point


def _paid(curve: Part, point: Part) -> str:
    lost = point["kv_tokens_lost"]
    if lost is not None:
        return f"{lost:,} tokens of KV cache per rank"
    return f"{size(point['memory_bytes_per_rank'] - curve['points'][0]['memory_bytes_per_rank'])} per rank"


def _won(curve: Part, point: Part, by: str) -> str:
    """What a point wins over zero redundancy."""
    first = curve["points"][0]
    if by == "seconds":
        old, new = first["step_us"]["p99"], point["step_us"]["p99"]
        return f"P99 of a step {microseconds(old)} → {microseconds(new)} ({change(old, new)})"
    old, new = first["rank_imbalance"]["p99"], point["rank_imbalance"]["p99"]
    return f"P99 imbalance {old:.3f} → {new:.3f}"


def _place(curve: Part) -> str:
    return f"{many(curve['ranks'], 'rank')}, {curve['windows']}"


def _headline(document: Part) -> Headline:
    by = document["gain_by"]
    told = [_answer(curve, by) for curve in document["curves"]]
    lines = (
        *told[1:],
        f"Judged by {BETTER[by]}. Seconds are predicted: {document['cost']['label']}.",
        *_seen(document),
    )
    found = [_knee(curve, by) for curve in document["curves"]]
    slots = {None if point is None else point["extra_slots_per_rank"] for point in found}
    if slots == {None}:
        return Headline(mood=Mood.NEUTRAL, word="NO MORE SLOTS", text=told[0], lines=lines)
    extra = slots.pop() if len(slots) == 1 else None
    word = "IT DEPENDS" if extra is None else f"{many(extra, 'MORE SLOT').upper()}"
    return Headline(mood=Mood.UNSURE if extra is None else Mood.GOOD, word=word, text=told[0], lines=lines)


def _answer(curve: Part, by: str) -> str:
    point = _knee(curve, by)
    if point is None:
        return f"{_place(curve)}: zero redundancy is best ({_why_none(curve, by)})."
    return (
        f"{_place(curve)}: {point['slots_per_rank']} slots per rank, {point['extra_slots_per_rank']} more than the "
        f"fewest, {_won(curve, point, by)}, for {_paid(curve, point)}."
    )


def _why_none(curve: Part, by: str) -> str:
    key, _ = GAINS[by]
    points = curve["points"][1:]
    if not points:
        return "nothing else was tried"
    if all(point["gain"][key]["noise"] is None for point in points):
        return "too few windows to tell a gain from noise"
    if by == "imbalance" and any(point["slower"] and point["gain"][key]["counts"] for point in points):
        return "what gains has a slower step"
    return "no point gains more than the noise"


def _seen(document: Part) -> tuple[str, ...]:
    """A warning where nothing is held out."""
    blind = [_place(curve) for curve in document["curves"] if not curve["held_out_windows"]]
    return (f"Nothing is held out, figures are those of the fit: {', '.join(blind)}.",) if blind else ()


def _key(document: Part) -> tuple[Fact, ...]:
    """The first curve's answer in numbers."""
    curve, by = document["curves"][0], document["gain_by"]
    point, first = _knee(curve, by) or curve["points"][0], curve["points"][0]
    old, new = first["step_us"]["p99"], point["step_us"]["p99"]
    uneven = first["rank_imbalance"]["p99"], point["rank_imbalance"]["p99"]
    left = point["kv_tokens_left"]
    return (
        Fact(label="slots per rank", value=str(point["slots_per_rank"]), note=_place(curve)),
        Fact(label="step P99", value=microseconds(new), note=f"zero redundancy {microseconds(old)}"),
        Fact(label="imbalance P99", value=f"{uneven[1]:.3f}", note=f"zero redundancy {uneven[0]:.3f}"),
        Fact(label="expert memory per rank", value=size(point["memory_bytes_per_rank"]), note=_paid(curve, point)),
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
    best = "; ".join(_place(curve) for curve in document["curves"])
    return Figure(
        name=by,
        title=PANELS[by],
        alt=f"Curves for {best}: memory of redundant slots to the right, {PANELS[by]} upwards, points named by slots "
        "per rank. The ring is the answer, the square the knee of this curve.",
        conclusion=told,
        chart=chart_of(document, by),
    )


def _said(curve: Part, by: str) -> str:
    point = _knee(curve, by)
    if point is None:
        return f"{_place(curve)}: no knee, {_why_none(curve, by)}."
    return f"{_place(curve)}: knee at {point['slots_per_rank']} slots, {_won(curve, point, by)}."


def _side_by_side(document: Part) -> Table:
    rows = []
    for curve in document["curves"]:
        point = _knee(curve, document["gain_by"]) or curve["points"][0]
        left = point["kv_tokens_left"]
        rows.append(
            (
                str(curve["ranks"]),
                curve["windows"],
                str(point["slots_per_rank"]),
                f"{point['step_us']['p99']:,.0f}",
                f"{point['step_us']['p50'] * curve['ranks']:,.0f}",
                "–" if left is None else f"{left * curve['ranks']:,}",
            )
        )
    return Table(
        name="side_by_side",
        title="The curves at their answers",
        columns=(
            "ranks",
            "planned on",
            "slots per rank",
            "step P99, µs",
            "GPU µs per step",
            "KV tokens left, all ranks",
        ),
        rows=tuple(rows),
        note="imbalance of windows of different length cannot be compared, µs can · GPU µs = ranks × P50",
    )


def _gains(document: Part) -> tuple[Section, ...]:
    """Nothing where zero redundancy alone was tried."""
    blocks = [
        _gain(curve, by, len(document["curves"]) > 1)
        for curve in document["curves"]
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


def _gain(curve: Part, by: str, several: bool) -> Figure:
    key, words = GAINS[by]
    counted = [point for point in curve["points"][1:] if point["gain"][key]["counts"]]
    where = f", {_place(curve)}" if several else ""
    unknown = all(point["gain"][key]["noise"] is None for point in curve["points"][1:])
    said = (
        f"More than chance: {', '.join(str(point['slots_per_rank']) for point in counted)} slots."
        if counted
        else "Too few windows to tell a gain from noise."
        if unknown
        else "No point gains more than the noise."
    )
    return Figure(
        name=f"gain_{slug(_place(curve))}_{by}" if several else f"gain_{by}",
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
    knee = _knee(curve, by)
    rows: list[tuple[str, ...]] = []
    for point in curve["points"]:
        mark = "→" if point is knee else ""
        rows.append((mark, str(point["slots_per_rank"]), point["policy"], *_cells(point)))
        if "per_layer" in point:
            slots = point["per_layer"]["slots_per_rank"].values()
            rows.append(("", f"{min(slots)}-{max(slots)}", "per layer", *_cells(point["per_layer"])))
    judged = (
        f"judged on {curve['held_out_tokens']:,} tokens, {many(curve['held_out_windows'], 'window')}"
        if curve["held_out_windows"]
        else f"figures of the {many(curve['fit_windows'], 'window')} of the fit"
    )
    return Table(
        name=f"points_{number}",
        title=f"{_place(curve)} on {many(curve['nodes'], 'node')}",
        columns=(
            "", "slots per rank", "placement", "imbalance mean", "P99", "layer P50, µs", "P99", "step P99, µs",
            "expert memory", "KV tokens lost", "left",
        ),
        rows=tuple(rows),
        note=f"→ the answer · {judged}",
    )  # fmt: skip


def _cells(row: Part) -> tuple[str, ...]:
    return (
        f"{row['rank_imbalance']['mean']:.3f}",
        f"{row['rank_imbalance']['p99']:.3f}",
        f"{row['layer_us']['p50']:.1f}",
        f"{row['layer_us']['p99']:.1f}",
        f"{row['step_us']['p99']:,.0f}",
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
