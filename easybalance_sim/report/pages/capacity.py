"""The page of `ebsim capacity`: the highest rate inside the SLO, and the least hardware for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from easybalance_sim.report.capacity_words import itself, untold
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.lines import Bound, Event, Line, Lines
from easybalance_sim.report.content import Block, Fact, Figure, Headline, MadeBy, Mood, Page, Section, Table
from easybalance_sim.report.provenance import provenance
from easybalance_sim.report.sections.served import KEYS
from easybalance_sim.report.words import many, milliseconds, rate, share, slug

Part = Mapping[str, Any]
ENDS = {"serial": "none hidden", "overlapped": "all hidden"}


def page(document: Part, made_by: MadeBy) -> Page:
    """Of a search for rates, GPUs, replicas and layouts."""
    blocks = [
        *(block for found in document.get("fewest_gpus", ()) for block in _fleet(found)),
        *(block for found in document.get("replicas", ()) for block in _replicas(found)),
        *(block for found in document.get("parallelism", ()) for block in _layouts(found)),
    ]
    lead = "The same question asked of other clusters, more slots, or another split of the same GPUs."
    others = (Section(name="others", title="Less or other hardware", lead=lead, blocks=tuple(blocks)),)
    return Page(
        title=document["scenario"]["title"],
        subtitle=_subtitle(document),
        headline=_headline(document),
        key=tuple(_key(document)),
        findings=(),
        sections=(_rates(document), *(others if blocks else ())),
        provenance=_provenance(document, made_by),
        notes=tuple(document.get("notes", ())),
    )


def _subtitle(report: Part) -> str:
    slo = report["slo"]
    return (
        f"{report['gpus']} GPUs · {100 * slo['share']:g} % of the requests inside TTFT {milliseconds(slo['ttft_ms'])} "
        f"and TPOT {milliseconds(slo['tpot_ms'])}"
    )


def _headline(report: Part) -> Headline:
    stated = report["highest_rate"]["stated"]
    old, new = (stated[key]["rate_per_s"] for key in ("before", "after"))
    lines = tuple(_lines(report))
    if not old and not new:
        text = f"{report['gpus']} GPUs hold no rate inside the SLO, before or after."
        return Headline(mood=Mood.BAD, word="NO RATE HOLDS", text=text, lines=lines)
    text = f"{report['gpus']} GPUs hold {rate(old)} requests/s before and {rate(new)} after"
    if stated["gain"] is None:
        return Headline(mood=Mood.GOOD, word="HOLDS NOW", text=f"{text}: none did before.", lines=lines)
    if not stated["told_apart"]:
        text = f"{text}: {untold(report)}."
        return Headline(mood=Mood.NEUTRAL, word="NO DIFFERENCE", text=text, lines=lines)
    gain = 100 * (stated["gain"] - 1)
    more = gain > 0
    text = f"{text}, {gain:+.1f} %."
    return Headline(mood=Mood.GOOD if more else Mood.BAD, word="MORE" if more else "LESS", text=text, lines=lines)


def _lines(report: Part) -> Iterator[str]:
    for name, words in ENDS.items():
        ends = report["highest_rate"]["bracket"][name]
        yield (
            f"Communication {words} behind compute: {rate(ends['before']['rate_per_s'])} → "
            f"{rate(ends['after']['rate_per_s'])} requests/s{_told(ends, report)}."
        )
    for found in report.get("fewest_gpus", ()):
        least = {key: found[key]["gpus"] for key in ("before", "after")}
        fewer = (least["before"] or 0) - (least["after"] or 0)
        saved = f", {many(fewer, 'GPU')} saved" if all(least.values()) and fewer > 0 else ""
        yield (
            f"Fewest GPUs of the {found['role']} pool for {rate(found['rate_per_s'])} requests/s: "
            f"{least['before'] or 'none tried'} → {least['after'] or 'none tried'}{saved}."
        )
    yield f"Seconds by {'; '.join(report['cost'])}: trust ratios, not figures."


def _told(ends: Part, report: Part) -> str:
    if ends["gain"] is None:
        return ""
    if not ends["told_apart"]:
        return f" ({untold(report)})"
    return f" ({100 * (ends['gain'] - 1):+.1f} %)"


def _key(report: Part) -> Iterator[Fact]:
    stated = report["highest_rate"]["stated"]
    old, new, even = (stated[key] for key in KEYS)
    yield Fact(
        label="highest rate, requests/s",
        value=f"{rate(old['rate_per_s'])} → {rate(new['rate_per_s'])}",
        note=f"ranks alike: {rate(even['rate_per_s'])}",
    )
    yield Fact(
        label="more requests fail by", value=new["ends_by"] or "nothing found", note=f"before: {old['ends_by'] or '–'}"
    )
    at = new["at"]
    if at is not None:
        yield Fact(label="TTFT P99 there", value=milliseconds(at["ttft_p99_ms"]))
        yield Fact(label="TPOT P99 there", value=milliseconds(at["tpot_p99_ms"]))
        yield Fact(label="output tokens/s there", value=f"{at['output_tokens_per_s']:,.0f}")
        yield Fact(label="KV cache in use there", value=share(at["kv_in_use"]), note="peak")


def _rates(report: Part) -> Section:
    stated = report["highest_rate"]["stated"]
    even = stated["even"]["rate_per_s"]
    lead = (
        f"The plan after holds {rate(stated['after']['rate_per_s'])} requests/s; the same plan with ranks loaded alike "
        f"by decree would hold {rate(even)}, all found to {100 * report['tolerance']:g} %."
    )
    blocks = (_attained(report), _highest(report), _table(report))
    return Section(name="rates", title="The highest rate", lead=lead, blocks=blocks)


def _attained(report: Part) -> Figure:
    stated, slo = report["highest_rate"]["stated"], report["slo"]
    lines = []
    for key, words in KEYS.items():
        tried = stated[key].get("tried") or [one for one in (stated[key]["at"], stated[key]["beyond"]) if one]
        lines.append(
            Line(
                name=words,
                x=tuple(float(one["rate_per_s"]) for one in tried),
                y=tuple(100 * float(one["inside_slo"]) for one in tried),
                dots=True,
                dashed=key == "even",
            )
        )
    held = tuple(
        Event(x=float(stated[key]["rate_per_s"]), name=f"{words} holds")
        for key, words in KEYS.items()
        if stated[key]["rate_per_s"] and key != "even"
    )
    ends = sorted({stated[key]["ends_by"] or "nothing found" for key in ("before", "after")})
    return Figure(
        name="attainment",
        title="Requests inside the SLO against the rate",
        alt="Lines before, after, and with even ranks: requests per second to the right, share inside the SLO upwards; "
        f"a dashed line at {100 * slo['share']:g} %.",
        conclusion=f"What more requests fail by: {', '.join(ends)}. Points are the rates that were tried; a rate above "
        "the line still fails where its queue grows.",
        chart=Lines(
            lines=tuple(lines), x="requests/s", y="inside the SLO, %", events=held,
            bounds=(Bound(y=100 * float(slo["share"]), name=f"{100 * slo['share']:g} % asked for"),),
        ),
    )  # fmt: skip


def _highest(report: Part) -> Figure:
    found = report["highest_rate"]
    rows = tuple(ENDS.values())
    sections = tuple(found["bracket"][name] for name in ENDS)
    series = tuple(
        Series(name=words, values=tuple(_rate_of(section, key) for section in sections))
        for key, words in KEYS.items()
        if any(_rate_of(section, key) is not None for section in sections)
    )
    gains = [section["gain"] for section in sections if section["gain"] is not None and section["told_apart"]]
    said = (
        f"The gain is {100 * (min(gains) - 1):+.1f} to {100 * (max(gains) - 1):+.1f} % where it is told apart"
        if gains
        else "The plan after is the plan before: no other one was taken"
        if itself(report)
        else "Nowhere are the plans told apart"
    )
    said += "" if itself(report) else f", at a tolerance of {100 * report['tolerance']:g} %"
    return Figure(
        name="highest_rate",
        title="Highest rate, and both ends of overlap",
        alt="Bars of the highest rate before and after, with none and with all communication hidden, and with even "
        "ranks where that was asked.",
        conclusion=f"{said}.",
        chart=Bars(
            rows=rows, row="communication", series=series, value="requests/s inside the SLO (more is better)",
            form="{:,.3g}",
        ),
    )  # fmt: skip


def _rate_of(section: Part, key: str) -> float | None:
    return float(section[key]["rate_per_s"]) if key in section else None


def _table(report: Part) -> Table:
    stated = report["highest_rate"]["stated"]
    return Table(
        name="rates_table",
        title="At the highest rate",
        columns=("", "requests/s", "inside", "TTFT P99", "TPOT P99", "output tokens/s", "KV peak", "ends by", "runs"),
        rows=tuple((words, *_cells(stated[key])) for key, words in KEYS.items()),
        note="ends by: what more requests fail by",
    )


def _cells(found: Part) -> tuple[str, ...]:
    at, ends, runs = found["at"], found["ends_by"] or "nothing found", str(found["runs"])
    if at is None:
        return ("none", "–", "–", "–", "–", "–", ends, runs)
    least, most = at["inside_slo_of_seeds"]
    spread = "" if least == most else f" ({100 * least:.1f}–{100 * most:.1f})"
    return (
        rate(found["rate_per_s"]),
        f"{share(at['inside_slo'])}{spread}",
        milliseconds(at["ttft_p99_ms"]),
        milliseconds(at["tpot_p99_ms"]),
        f"{at['output_tokens_per_s']:,.0f}",
        share(at["kv_in_use"]),
        ends,
        runs,
    )


def _fleet(found: Part) -> tuple[Block, ...]:
    """The fewest GPUs, and all numbers that were tried."""
    role, name = found["role"], f"gpus_{slug(found['role'])}"
    fewest = tuple(found[key]["gpus"] for key in ("before", "after"))
    told = [words for words, gpus in zip(("before", "after"), fewest, strict=True) if gpus is None]
    said = f"None of the numbers tried holds the rate {' and '.join(told)}." if told else _spared(*fewest)
    figure = Figure(
        name=name,
        title=f"Fewest GPUs of the {role} pool for {rate(found['rate_per_s'])} requests/s",
        alt="Two bars: the fewest GPUs that hold the rate with the plan before and after.",
        conclusion=said,
        chart=Bars(
            rows=("before", "after"), row="plan", series=(Series(name="GPUs", values=fewest),),
            value="GPUs (less is better)", form="{:,.0f}",
        ),
    )  # fmt: skip
    tried = _tried(found, f"{name}_tried")
    return (figure, tried) if any(fewest) else (tried,)


def _spared(before: int, after: int) -> str:
    if before == after:
        return f"{many(before, 'GPU')} either way."
    return f"{many(after, 'GPU')} instead of {before}: {abs(before - after)} {'saved' if after < before else 'more'}."


def _tried(found: Part, name: str) -> Table:
    role = found["role"]
    stay = "".join(f" · the {other} pool stays at {gpus} GPUs" for other, gpus in found["others_stay"].items())
    rows = [
        (str(one["gpus"]), "cannot be", one["refused"])
        if one["refused"] is not None
        else (str(one["gpus"]), *(_holds(one[key]) for key in ("before", "after")))
        for one in found["tried"]
    ]
    return Table(
        name=name,
        title=f"Numbers of GPUs of the {role} pool that were tried",
        columns=("GPUs", "before", "after"),
        rows=tuple(rows),
        note=f"fewest: {found['before']['gpus'] or 'none tried'} before, {found['after']['gpus'] or 'none tried'} "
        f"after{stay}",
    )


def _holds(one: Part) -> str:
    return "holds" if one["holds"] else f"fails by {one['ends_by']}"


def _replicas(found: Part) -> tuple[Block, ...]:
    role, worth = found["role"], found["worth_buying"]
    said = (
        "No number of spare slots holds any rate."
        if worth is None
        else f"No spare slot is worth it: each number adds less than {100 * found['worth_frac']:g} % to the rate."
        if not worth
        else f"{many(worth, 'spare slot')} per rank {'is' if worth == 1 else 'are'} worth it; more add less than "
        f"{100 * found['worth_frac']:g} % to the rate."
    )
    names = tuple(f"{row['spare_slots']} spare" for row in found["rows"])
    return _compared(found, names, f"replicas_{slug(role)}", f"Replicas in the {role} pool", said)


def _layouts(found: Part) -> tuple[Block, ...]:
    role = found["role"]
    best = [f"{one['experts']} with {one['attention']}" for one in found["best"]["after"]]
    said = f"Best with the plan after: {', '.join(best) or 'none holds any rate'}."
    names = tuple(f"{row['experts']}, {row['attention']}" for row in found["rows"])
    return _compared(
        found, names, f"layouts_{slug(role)}", f"The same GPUs of the {role} pool, laid out otherwise", said
    )


def _compared(found: Part, names: tuple[str, ...], name: str, title: str, said: str) -> tuple[Block, ...]:
    """Rates of layouts as bars and as a table; one that cannot be has no bar."""
    able = [row for row in found["rows"] if row["refused"] is None]
    series = tuple(
        Series(
            name=key, values=tuple(None if row[key] is None else float(row[key]["rate_per_s"]) for row in found["rows"])
        )
        for key in ("before", "after")
    )
    chart = Bars(
        rows=names, row="layout", series=series, value="highest rate, requests/s (more is better)", form="{:,.3g}"
    )
    table = Table(
        name=f"{name}_table",
        title=f"{title}, in numbers",
        columns=("layout", "GPUs", "before", "after", "TPOT P99", "KV tokens", "replicas", "ends by", "plan after"),
        rows=tuple(_layout(words, row) for words, row in zip(names, found["rows"], strict=True)),
    )
    alt = f"Bars of the highest rate before and after for {', '.join(names)}."
    figure = Figure(name=name, title=title, alt=alt, conclusion=said, chart=chart)
    return (figure, table) if able else (table,)


def _layout(words: str, row: Part) -> tuple[str, ...]:
    if row["refused"] is not None:
        return (words, str(row["gpus"]), "–", "–", "–", "–", "–", "cannot be", row["refused"])
    after = row["after"]
    return (
        words,
        str(row["gpus"]),
        rate(row["before"]["rate_per_s"]),
        rate(after["rate_per_s"]),
        "–" if after["at"] is None else milliseconds(after["at"]["tpot_p99_ms"]),
        f"{row['kv_tokens']:,}",
        str(row["replicas"]),
        after["ends_by"] or "nothing found",
        after["policy"],
    )


def _provenance(report: Part, made_by: MadeBy) -> tuple[Fact, ...]:
    scenario = report["scenario"]
    seeds = ", ".join(str(seed) for seed in report["seeds"])
    return provenance(
        made_by,
        [
            Fact(label="scenario", value=scenario["file"], note=" ".join(scenario["why"].split())),
            Fact(label="run", value=f"{report['duration_s']:g} s, overlap {report['overlap']}", note=f"seeds {seeds}"),
            Fact(
                label="plans",
                value=" → ".join(", ".join(dict.fromkeys(report["plans"][key])) for key in ("before", "after")),
            ),
            Fact(label="seconds", value="; ".join(report["cost"])),
        ],
    )
