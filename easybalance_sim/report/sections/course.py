"""How does it hold over time? Imbalance window by window, with what happened meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from easybalance_sim.report.charts.lines import Event, Line, Lines
from easybalance_sim.report.charts.panels import Panels
from easybalance_sim.report.content import Figure, Section
from easybalance_sim.report.sections.sides import SIDES, excess_removed, nothing_to_even, side_names, takes
from easybalance_sim.report.words import many

BURST, MOST_BURSTS = 2.0, 4
"""Steps of so many times the usual tokens are a burst; the largest ones are marked."""
WEARS_OFF = 0.8


def section(report: Mapping[str, Any]) -> Section | None:
    """None where the report does not hold the windows, or there is only one."""
    over_time = (report.get("maps") or {}).get("over_time")
    if not over_time or len(over_time["window"]) < 2:
        return None
    return Section(
        name="course",
        title="How does it hold over time?",
        lead=nothing_to_even(report) or _evener(over_time),
        blocks=(_imbalance(report, over_time), _steps(report, over_time)),
    )


def _pairs(over_time: Mapping[str, Any], start: int = 0, stop: int | None = None) -> list[tuple[float, float]]:
    """Means of the baseline and the plan where there is traffic."""
    both = zip(*(over_time[side]["mean"][start:stop] for side in SIDES), strict=True)
    return [(old, new) for old, new in both if old is not None and new is not None]


def _evener(over_time: Mapping[str, Any]) -> str:
    pairs = _pairs(over_time)
    evener = sum(new < old for old, new in pairs)
    worse = sum(new > old for old, new in pairs)
    what = "windows" if over_time["windows_per_point"] == 1 else "stretches of windows"
    said = f"The plan is more even in {evener:,} of {len(pairs):,} {what}"
    said += f" and less even in {worse:,}." if worse else "."
    return f"{said} {_trend(over_time)}".rstrip()


def _trend(over_time: Mapping[str, Any]) -> str:
    """Whether the gain lasts: what the plan takes off the excess in the first and in the second half."""
    half = len(over_time["window"]) // 2
    shares = []
    for pairs in (_pairs(over_time, 0, half), _pairs(over_time, half)):
        if not pairs:
            return ""
        old, new = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        shares.append(excess_removed(old, new))
    first, second = shares
    if first is None and second is None:
        return "The baseline leaves nothing to even out."
    if first is None or second is None:
        return f"In the {'first' if first is None else 'second'} half the baseline leaves nothing to even out."
    excess = "the baseline's excess in the first half"
    said = f"It {takes(first, excess)} and {takes(second, 'it in the second')}"
    if first <= 0 and second <= 0:
        return f"{said}: no gain at any time."
    if first <= 0 < second:
        return f"{said}: the gain comes late, and is not to be relied on."
    if second < WEARS_OFF * first:
        return f"{said}: the gain wears off; plan again when traffic changes (ebsim rebalance tells how often)."
    return f"{said}: the gain lasts."


def _imbalance(report: Mapping[str, Any], over_time: Mapping[str, Any]) -> Figure:
    events = _events(over_time)
    panels = tuple(
        Lines(lines=_lines(report, over_time, stat), x=_axis(report, over_time), y=title, events=events)
        for stat, title in (("mean", "mean over layers"), ("worst", "worst layer"))
    )
    said = _spoken(events, over_time["leading"])
    return Figure(
        name="over_time",
        title="Rank imbalance over time",
        alt=(
            f"Lines over {many(len(over_time['window']), 'point')} in time, baseline and plan, mean over layers and "
            f"worst layer. {said}"
        ),
        conclusion=f"Each point is {_point(over_time)}, dotted lines mark bursts and workloads that have most of the "
        f"running requests. {_tail(report, over_time)}{said}",
        chart=Panels(panels=panels),
    )


def _point(over_time: Mapping[str, Any]) -> str:
    joined = over_time["windows_per_point"]
    return "a window" if joined == 1 else f"{joined} windows in a row"


def _worst(over_time: Mapping[str, Any]) -> str:
    worst, place = max((value, place) for place, value in enumerate(over_time["plan"]["worst"]) if value is not None)
    tokens, usual = over_time["step_tokens"][place], median(over_time["step_tokens"])
    why = ""
    if tokens < usual / BURST:
        why = ", where steps are small: few tokens cannot be even"
    elif tokens > usual * BURST:
        why = ", in a burst"
    return f"The plan's worst layer reaches {worst:.3f} in {_when(over_time, place)}{why}. "


def _tail(report: Mapping[str, Any], over_time: Mapping[str, Any]) -> str:
    """Where the plan's tail comes from."""
    if nothing_to_even(report):
        return ""
    said, most = _worst(over_time), report["plan"]["rank_imbalance"]["p99"]
    worst = over_time["plan"]["worst"]
    tokens = [
        one for one, ratio in zip(over_time["step_tokens"], worst, strict=True) if ratio is not None and ratio >= most
    ]
    usual = median(over_time["step_tokens"])
    if not tokens or median(tokens) >= usual / BURST:
        return said
    return (
        f"{said}The P99 ({most:.3f}) is reached in {many(len(tokens), 'point')} of small steps ({median(tokens):,.1f} "
        f"tokens in the median, {usual:,.1f} over all): they are uneven whatever the plan. "
    )


def _when(over_time: Mapping[str, Any], place: int) -> str:
    """The windows of a point; the first of them is what it is drawn at."""
    window = over_time["window"]
    if over_time["windows_per_point"] == 1:
        return f"window {window[place]}"
    if place + 1 == len(window):
        return f"the windows from {window[place]} on"
    return f"windows {window[place]} to {window[place + 1] - 1}"


def _lines(report: Mapping[str, Any], over_time: Mapping[str, Any], stat: str) -> tuple[Line, ...]:
    x = tuple(float(one) for one in over_time["window"])
    return tuple(
        Line(name=name, x=x, y=tuple(over_time[side][stat]))
        for side, name in zip(SIDES, side_names(report), strict=True)
    )


def _axis(report: Mapping[str, Any], over_time: Mapping[str, Any]) -> str:
    split, joined = report["split"], over_time["windows_per_point"]
    if report["trace"]["kind"] == "counts":
        name = "window of the trace"
    elif split.get("window_seconds"):
        name = f"window of {split['window_seconds']:g} s"
    else:
        name = f"window of {many(split['window_steps'], 'step')}"
    return name if joined == 1 else f"{name}, {joined} to a point"


def _steps(report: Mapping[str, Any], over_time: Mapping[str, Any]) -> Figure:
    tokens = over_time["step_tokens"]
    kind = "window" if report["trace"]["kind"] == "counts" else "step"
    x = tuple(float(one) for one in over_time["window"])
    return Figure(
        name="step_tokens",
        title=f"Judged tokens per {kind}",
        alt=f"Line of judged tokens per {kind}, the mean of each point, from {min(tokens):,.0f} to {max(tokens):,.0f}.",
        conclusion=_tokens(report, over_time),
        chart=Lines(
            lines=(Line(name="tokens", x=x, y=tuple(tokens)),),
            x=_axis(report, over_time),
            y=f"judged tokens per {kind}, mean",
            events=_events(over_time),
            y_from=0.0,
        ),
    )


def _tokens(report: Mapping[str, Any], over_time: Mapping[str, Any]) -> str:
    """What a point averages, and how far single steps go beyond it."""
    tokens, usual = over_time["step_tokens"], median(over_time["step_tokens"])
    counts, joined = report["trace"]["kind"] == "counts", over_time["windows_per_point"]
    sizes = f"{usual:,.0f} judged tokens at the median point and {max(tokens):,.0f} at the highest"
    sizes += f" ({max(tokens) / usual:.1f} times)" if usual else ""
    if counts and joined == 1:
        said = f"A window has {sizes}."
    else:
        said = f"On average over {_point(over_time)} a {'window' if counts else 'step'} has {sizes}."
    if max(tokens) > BURST * usual:
        said += " Bursts decide memory and buffers; small ones look uneven whatever the plan." * (
            not nothing_to_even(report)
        )
    else:
        said += " No point is a burst; one that is shorter than a point cannot be seen here."
    sent = report["memory"]["dispatch_buffer"]["sent_per_rank"]
    if not counts and sent > max(tokens):
        held = ", which its dispatch buffer must hold" if report["cluster"]["ranks"] > 1 else ""
        said += f" Single steps go beyond: in the fullest, one rank alone has {sent:,} tokens{held}."
    return said


def _events(over_time: Mapping[str, Any]) -> tuple[Event, ...]:
    """Bursts, and where another workload takes the lead."""
    window, tokens = over_time["window"], over_time["step_tokens"]
    usual = median(tokens)
    high = sorted(
        (place for place, one in enumerate(tokens) if one > BURST * usual > 0), key=lambda place: -tokens[place]
    )
    found = [(place, f"burst, {tokens[place] / usual:.1f} times") for place in high[:MOST_BURSTS]]
    found += _leads(over_time["leading"] or ())
    return tuple(Event(x=float(window[place]), name=name) for place, name in sorted(found))


def _leads(leading: Sequence[str]) -> list[tuple[int, str]]:
    found, last = [], ""
    for place, name in enumerate(leading):
        if name and name != last:
            found.append((place, f"mostly {name}"))
        last = name or last
    return found


def _spoken(events: Sequence[Event], leading: Sequence[str] | None) -> str:
    """leading: as in the report, None = nothing is known of workloads."""
    leads = _leads(leading or ())
    bursts = len(events) - len(leads)
    parts = [many(bursts, "burst") if bursts else "no burst"]
    if len(leads) == 1:
        parts.append(f"one workload that leads ({leads[0][1]})")
    elif leads:
        parts.append(f"{many(len(leads) - 1, 'change')} of the leading workload")
    elif leading is not None:
        parts.append("no workload that has most of the requests")
    return f"Marked: {' and '.join(parts)}."
