"""The page of `ebsim offload`: how much of a model's experts has to be on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.report.charts.heat_map import HeatMap, Panel
from easybalance_sim.report.charts.lines import Line, Lines
from easybalance_sim.report.content import Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.offload_figure import X, chart_of, named, subject, title
from easybalance_sim.report.provenance import files_fact, provenance
from easybalance_sim.report.words import capital, listed, microseconds, portion, size, slug, times

Part = Mapping[str, Any]
MB = 1e6


def page(document: Part, made_by: MadeBy) -> Page:
    """Of caches of several sizes, for one or more batch sizes."""
    return Page(
        title=f"Experts off the GPU: {document['model']['name'] or 'unnamed model'}",
        subtitle=f"{subject(document)}, {document['trace']['layers']} layers × {document['trace']['experts']} experts, "
        f"{size(document['model']['all_bytes'])} in all",
        headline=_headline(document),
        key=_key(document),
        findings=(),
        sections=tuple(_batch(document, batch) for batch in document["batches"]),
        provenance=_provenance(document, made_by),
        notes=tuple(document.get("notes", ())),
    )


def least(batch: Part) -> Part | None:
    """The curve that keeps the mean step within the limit with the fewest experts on the GPU, of those that do not know
    the future; None when none does."""
    able = [curve for curve in batch["curves"] if not curve["bound"] and curve["within_from"] is not None]
    return min(able, key=lambda curve: float(curve["within_from"]["share"]), default=None)


def read_at(batch: Part) -> int:
    """The place of the size that figures are read off at: the answer's; where all experts have to be there, the largest
    size that leaves some out."""
    shares = [float(point["share"]) for point in batch["curves"][0]["points"]]
    curve = least(batch)
    wanted = 1.0 if curve is None else float(curve["within_from"]["share"])
    if wanted < 1:
        return next(place for place, share in enumerate(shares) if share >= wanted)
    return max((place for place, share in enumerate(shares) if share < 1), key=lambda place: shares[place], default=0)


def _headline(document: Part) -> Headline:
    found = [least(batch) for batch in document["batches"]]
    shares = sorted(1.0 if curve is None else float(curve["within_from"]["share"]) for curve in found)
    low, high = portion(shares[0]), portion(shares[-1])
    keep = shares[0] == 1
    word = "KEEP ALL" if keep else low if low == high else f"{low.removesuffix(' %')}–{high}"
    limit = f"{100 * document['within']:g} %"
    text = (
        "All experts have to be on the GPU"
        if keep
        else f"{word} of the experts have to be on the GPU"
        if low == high
        else f"{word} of the experts have to be on the GPU, by batch size,"
    )
    # The answers of the run name sizes and policies for every batch size.
    return Headline(
        mood=Mood.NEUTRAL if keep else Mood.GOOD,
        word=word,
        text=f"{text} to keep the mean step within {limit} of having them all there.",
        lines=(*(f"{answer}." for answer in document["answers"]), f"Seconds are predicted: {document['seconds']}."),
    )


def _key(document: Part) -> tuple[Fact, ...]:
    host, model = document["host"], document["model"]
    facts = []
    for batch in document["batches"]:
        curve = least(batch)
        value = "all" if curve is None else portion(curve["within_from"]["share"])
        note = "" if curve is None else f"{named(curve)}, {size(curve['within_from']['gpu_bytes'])}"
        facts.append(Fact(label=f"on the GPU, {title(batch)}", value=value, note=note))
    facts.append(Fact(label="one expert", value=size(model["resident_bytes"]), note=model["resident_dtype"]))
    facts.append(
        Fact(
            label="one expert on the link",
            value=microseconds(host["expert_us"]),
            note=f"{host['bytes_per_s'] / 1e9:.3g} GB/s after {host['latency_us']:.3g} µs",
        )
    )
    return tuple(facts)


def _batch(document: Part, batch: Part) -> Section:
    prefix, resident = f"batch_{slug(title(batch))}_", batch["all_resident"]
    lead = (
        f"{batch['judged_steps']:,} steps were judged, {batch['tokens_per_step']:.3g} tokens each, which need "
        f"{batch['experts_per_layer']:.3g} experts a layer. With all experts there a step takes "
        f"{microseconds(resident['step_us']['mean'])}."
    )
    blocks = [
        _slowdown(document, batch, prefix),
        _hits(document, batch, prefix),
        _drawn(batch, prefix, "waits", "What a step waits", "P99 of the wait of a step, ms", ("added_us", "p99"), 1e-3),
        _drawn(batch, prefix, "link", "Bytes on the link", "MB per token", ("link_bytes_per_token",), 1 / MB),
        *_layers(batch, prefix),
    ]
    return Section(
        name=prefix.rstrip("_"), title=capital(title(batch)), lead=lead, blocks=(*blocks, _table(batch, prefix))
    )


def _slowdown(document: Part, batch: Part, prefix: str) -> Figure:
    curve = least(batch)
    limit = f"{100 * document['within']:g} %"
    if curve is None:
        said = f"No policy keeps the mean step within {limit} with any of these sizes."
    else:
        found = curve["within_from"]
        said = (
            f"From {portion(found['share'])} of the experts on ({size(found['gpu_bytes'])}) {named(curve)} keeps "
            f"the mean step within {limit}: {times(found['slowdown'])}."
        )
    return Figure(
        name=f"{prefix}slowdown",
        title="How much longer steps get",
        alt=f"A line for each of {_curves(batch)}: share of the experts on the GPU to the right, mean step over that "
        "with all of them there upwards. Dashed ones know the future.",
        conclusion=said,
        chart=chart_of(document, batch, "slowdown"),
    )


def _curves(batch: Part) -> str:
    return listed([named(curve) for curve in batch["curves"]], 8)


def _hits(document: Part, batch: Part, prefix: str) -> Figure:
    wanted = document["claimed_hit_rate"]
    reached = {
        named(curve): curve["claimed_hit_rate_from"]["share"]
        for curve in batch["curves"]
        if not curve["bound"] and curve["claimed_hit_rate_from"] is not None
    }
    first = min(reached, key=lambda name: float(reached[name]), default=None)
    said = (
        f"No policy finds {100 * wanted:g} % of the experts there."
        if first is None
        else f"{first} is the first to find {100 * wanted:g} % of the experts there, from "
        f"{portion(reached[first])} of all in the cache on."
    )
    return Figure(
        name=f"{prefix}hits",
        title="Experts that were there",
        alt=f"A line for each of {_curves(batch)}: share of the experts on the GPU to the right, share of needed "
        "experts that were there upwards. Dashed ones know the future.",
        conclusion=said,
        chart=chart_of(document, batch, "hit_rate"),
    )


def _drawn(
    batch: Part, prefix: str, name: str, heading: str, y: str, path: tuple[str, ...], unit: float
) -> Figure:  # fmt: skip
    """A figure of one number per point, all policies."""
    lines, best, place = [], ("", float("inf")), read_at(batch)
    for curve in batch["curves"]:
        values = tuple(unit * _at(point, path) for point in curve["points"])
        shares = tuple(100 * float(point["share"]) for point in curve["points"])
        lines.append(Line(name=named(curve), x=shares, y=values, dashed=bool(curve["bound"]), dots=True))
        if not curve["bound"] and values[place] < best[1]:
            best = (named(curve), values[place])
    there = portion(batch["curves"][0]["points"][place]["share"])
    said = (
        f"With {there} of the experts there {best[0]} is lowest: {best[1]:.3g} {y.rpartition(', ')[2]}."
        if best[0]
        else "Only bounds were asked for, nothing that can be had."
    )
    return Figure(
        name=f"{prefix}{name}",
        title=heading,
        alt=f"A line for each of {_curves(batch)}: share of the experts on the GPU to the right, {y} upwards.",
        conclusion=said,
        chart=Lines(lines=tuple(lines), x=X, y=y, y_from=0.0),
    )


def _at(point: Part, path: tuple[str, ...]) -> float:
    value: Any = point
    for key in path:
        value = value[key]
    return float(value)


def _layers(batch: Part, prefix: str) -> tuple[Figure, ...]:
    """Hit rates by layer of one policy that can be had; nothing where layers were not told apart."""
    curve = least(batch) or next((one for one in batch["curves"] if not one["bound"]), None)
    if curve is None or not all("layers" in point for point in curve["points"]):
        return ()
    points = curve["points"]
    layers = tuple(int(row["layer"]) for row in points[0]["layers"])
    values = np.array([[100 * row["hit_rate"] for row in point["layers"]] for point in points]).T
    place = read_at(batch)
    worst = layers[int(values[:, place].argmin())]
    figure = Figure(
        name=f"{prefix}layers",
        title=f"Experts that were there, by layer: {named(curve)}",
        alt="A heat map of layers by share of the experts on the GPU: which share of the needed experts was there.",
        conclusion=f"With {portion(points[place]['share'])} of the experts there layer {worst} misses most: "
        f"{values[:, place].min():.0f} % were there.",
        chart=HeatMap(
            panels=(Panel(title="", values=values),), rows=layers,
            columns=tuple(round(100 * float(point["share"])) for point in points), row="layer", column=X,
            value="were there, %", form="{:.0f}",
        ),
    )  # fmt: skip
    return (figure,)


def _table(batch: Part, prefix: str) -> Table:
    rows = [_row(curve, point) for curve in batch["curves"] for point in curve["points"]]
    return Table(
        name=f"{prefix}table",
        title="All sizes and policies",
        columns=("policy", "on the GPU", "hits, %", "of tokens, %", "step, times", "P99 wait, ms", "MB per token"),
        rows=tuple(rows),
        note="bound: knows the future, nothing to deploy · step: mean, over that with all experts on the GPU",
    )


def _row(curve: Part, point: Part) -> tuple[str, ...]:
    return (
        f"{named(curve)}{' (bound)' if curve['bound'] else ''}",
        portion(point["share"]),
        f"{100 * point['hit_rate']:.1f}",
        f"{100 * point['token_hit_rate']:.1f}",
        f"{point['slowdown']:.2f}",
        f"{point['added_us']['p99'] / 1e3:.2f}",
        f"{point['link_bytes_per_token'] / MB:.3g}",
    )


def _provenance(document: Part, made_by: MadeBy) -> tuple[Fact, ...]:
    host, model = document["host"], document["model"]
    scope = "a cache for every layer" if document["scope"] == "layer" else "one cache for all layers"
    between = document["between_us"]
    return provenance(
        made_by,
        [
            files_fact(document["trace"]["files"]),
            Fact(label="link", value=host["name"], note=f"{host['bytes_per_s'] / 1e9:.3g} GB/s"),
            Fact(
                label="cache",
                value=scope,
                note=f"fetching looks {document['ahead']} layers ahead where it does so at all",
            ),
            Fact(label="dtype", value=f"{model['resident_dtype']} on the GPU, {model['offload_dtype']} on the link"),
            Fact(
                label="seconds",
                value=document["seconds"],
                note="" if between is None else f"{between:g} µs between layers, as stated",
            ),
        ],
    )
