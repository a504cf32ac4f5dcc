"""What requests get of a deployment under two plans, how firm that is, and both ends of what overlap can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.spans import Span, Spans
from easybalance_sim.report.content import Figure, Section, Table
from easybalance_sim.report.words import change, many, milliseconds, moved, rate, share, tenths, value_at

Part = Mapping[str, Any]
KEYS = {"before": "before", "after": "after", "even": "ranks alike"}
TIMES = {"ttft_ms": "time to first token", "tpot_ms": "time per output token", "end_to_end_ms": "end to end"}
POINTS = {"p50": "P50", "p95": "P95", "p99": "P99"}
ALIKE = 0.0005
"""Of a ratio: what prints as the same number is the same."""
SHORT = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "end_to_end_ms": "end to end"}


def got(report: Part) -> Section:
    """Times and shares of requests, before, after, and with even ranks."""
    before, after = report["before"], report["after"]
    lead = (
        f"{share(before['inside_slo'])} of the requests kept the SLO before, {share(after['inside_slo'])} after; the "
        f"whole bar is the stated case, the line on it reaches to the other end of what overlap can do."
    )
    return Section(
        name="requests",
        title="What requests get",
        lead=lead,
        blocks=(_inside(report), *(_times(report, key) for key in TIMES), _table(report)),
    )


def _ends(report: Part, key: str, path: str, scale: float = 1.0) -> tuple[float, float] | None:
    """Both ends of the bracket, None where it is not known."""
    if key not in report["bracket"]:
        return None
    found = [value_at(report["bracket"][key][end], path) for end in ("serial", "overlapped")]
    ends = [None if one is None else scale * one for one in found]
    known = [one for one in ends if one is not None]
    return (min(known), max(known)) if len(known) == len(ends) else None


def _inside(report: Part) -> Figure:
    values = tuple(100 * report[key]["inside_slo"] for key in KEYS)
    goodput = {key: report[key]["goodput_per_s"] for key in KEYS}
    missing = 100 - values[2]
    spread = tuple(_ends(report, key, "inside_slo", 100) for key in KEYS)
    slo = report["slo"]
    return Figure(
        name="inside_slo",
        title="Requests inside the SLO",
        alt="Three bars: share of the scored requests that kept both limits before, after, and with even ranks.",
        conclusion=f"Goodput {rate(goodput['before'])} → {rate(goodput['after'])} requests/s; perfect balance gives "
        f"{rate(goodput['even'])}, and {missing:.1f} % of the requests miss the SLO even then.",
        chart=Bars(
            rows=tuple(KEYS.values()), row="plan", series=(Series(name="inside", values=values, spread=spread),),
            value=f"inside TTFT {slo['ttft_ms']:,.0f} ms and TPOT {slo['tpot_ms']:,.1f} ms, % (more is better)",
            form="{:.1f}",
        ),
    )  # fmt: skip


def _times(report: Part, key: str) -> Figure:
    before, after, even = (report[one][key] for one in KEYS)
    series = tuple(
        Series(
            name=words,
            values=tuple(report[one][key][point] for point in POINTS),
            spread=tuple(_ends(report, one, f"{key}.{point}") for point in POINTS),
        )
        for one, words in KEYS.items()
    )
    limit = report["slo"].get(key)
    return Figure(
        name=key.removesuffix("_ms"),
        title=TIMES[key].capitalize(),
        alt=f"Bars of the percentiles 50, 95 and 99 of the {TIMES[key]}, before, after, and with even ranks.",
        conclusion=_course(key, before, after, even),
        chart=Bars(
            rows=tuple(POINTS.values()), row="percentile", series=series, value=f"{TIMES[key]}, ms (less is better)",
            form="{:,.0f}", bound=None if limit is None else (limit, f"SLO {milliseconds(limit)}"),
        ),
    )  # fmt: skip


def _course(key: str, before: Part, after: Part, even: Part) -> str:
    old, new = before["p99"], after["p99"]
    if old is None or new is None:
        missing = " and ".join(words for words, value in (("before", old), ("after", new)) if value is None)
        return f"No request has a {TIMES[key]} {missing}."
    best = f"; with even ranks {milliseconds(even['p99'])}" if even["p99"] is not None else ""
    return f"P50 {_turn(before['p50'], after['p50'])}, P99 {_turn(old, new)}{best}."


def _turn(old: float, new: float) -> str:
    """`56.5 ms → 57.9 ms (+2.4 %)`, `stays 56.5 ms`."""
    if milliseconds(old) == milliseconds(new):
        return f"stays {milliseconds(old)}"
    return f"{milliseconds(old)} → {milliseconds(new)} ({change(old, new)})"


_ROWS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("inside the SLO", "inside_slo", share),
    ("goodput, requests/s", "goodput_per_s", rate),
    *((f"{SHORT[key]} {words}, ms", f"{key}.{point}", tenths) for key in TIMES for point, words in POINTS.items()),
    ("input tokens/s", "input_tokens_per_s", rate),
    ("output tokens/s", "output_tokens_per_s", rate),
    ("answered", "requests.answered", rate),
    ("refused", "requests.refused", rate),
    ("unfinished", "requests.unfinished", rate),
)


def _table(report: Part) -> Table:
    rows = []
    for label, path, form in _ROWS:
        old, new, best = (value_at(report[key], path) for key in KEYS)
        rows.append((label, form(old), form(new), moved(old, new, form), form(best)))
    return Table(
        name="requests_table",
        title="Requests in numbers",
        columns=("", "before", "after", "change", "ranks alike"),
        rows=tuple(rows),
        note="ranks alike: the plan after, every rank loaded with the mean by decree · goodput: requests inside the "
        "SLO per second",
    )


_FIRM = (
    ("goodput_per_s", "goodput"), ("output_tokens_per_s", "output tokens/s"), ("ttft_ms.p50", "TTFT P50"),
    ("ttft_ms.p99", "TTFT P99"), ("tpot_ms.p50", "TPOT P50"), ("tpot_ms.p99", "TPOT P99"),
    ("end_to_end_ms.mean", "end to end, mean"), ("end_to_end_ms.p99", "end to end P99"),
)  # fmt: skip


def firm(report: Part) -> Section:
    """Other draws of chance, and the other end of overlap."""
    spans = []
    for path, words in _FIRM:
        found = [one[path] for one in report["draws"] if one[path] is not None]
        if found and report["ratios"][path] is not None:
            spans.append(Span(name=words, low=min(found), middle=report["ratios"][path], high=max(found)))
    draws = many(len(report["draws"]), "draw")
    blocks = (_spans(spans, draws), _bracket(report)) if spans else (_bracket(report),)
    lead = f"The same comparison over {draws} of routing and chance, and with none and all communication hidden."
    return Section(name="firm", title="How firm that is", lead=lead, blocks=blocks)


def _spans(spans: list[Span], draws: str) -> Figure:
    same = [span.name for span in spans if max(abs(span.low - 1), abs(span.high - 1)) < ALIKE]
    sure = [span.name for span in spans if span.name not in same and (span.low > 1 or span.high < 1)]
    turns = [span.name for span in spans if span.name not in same and span.name not in sure]
    said = [f"All draws agree on the sign for {', '.join(sure)}." if sure else "The draws agree on no sign."]
    if turns:
        said.append(f"Chance decides: {', '.join(turns)}.")
    said += [f"No draw changes {', '.join(same)}."] if same else []
    return Figure(
        name="draws",
        title="After over before, by draw",
        alt=f"A line per measure from the lowest to the highest ratio of after to before over {draws}, the mark being "
        "the stated run; the dashed line at 1 is no difference.",
        conclusion=" ".join(said) if len(same) < len(spans) else "Both plans serve exactly alike in every draw.",
        chart=Spans(
            spans=tuple(spans), row="measure", value="after / before", neutral=(1.0, "no difference"), form="{:.3f}",
        ),
    )  # fmt: skip


_BOTH: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("inside the SLO", "inside_slo", share),
    ("goodput, requests/s", "goodput_per_s", rate),
    ("TTFT P99, ms", "ttft_ms.p99", tenths),
    ("TPOT P50, ms", "tpot_ms.p50", tenths),
    ("TPOT P99, ms", "tpot_ms.p99", tenths),
    ("end to end, mean, ms", "end_to_end_ms.mean", rate),
    ("output tokens/s of a GPU", "output_tokens_per_s_gpu", rate),
)


def _bracket(report: Part) -> Table:
    ends, rows = report["bracket"], []
    for label, path, form in _BOTH:
        cells: list[str] = []
        for end in ("serial", "overlapped"):
            old, new = (value_at(ends[key][end], path) for key in ("before", "after"))
            cells += [f"{form(old)} → {form(new)}", moved(old, new, form)]
        rows.append((label, *cells))
    return Table(
        name="bracket",
        title="Both ends of overlap, before → after",
        columns=("", "none hidden", "change", "all hidden", "change"),
        rows=tuple(rows),
        note="communication behind compute: what a deployment reaches lies between the two",
    )
