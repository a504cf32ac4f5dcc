"""What control loops gained, over time, and what their changes of plan cost: the sections of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.charts.front import Front, Point
from easybalance_sim.report.charts.lines import Event, Line, Lines
from easybalance_sim.report.charts.panels import Panels
from easybalance_sim.report.choosing import Choice, marked
from easybalance_sim.report.content import Block, Figure, Section, Table
from easybalance_sim.report.rebalance_words import HOUR_S, advised_of, best_of, saved_words
from easybalance_sim.report.words import many, microseconds, size

Run = Mapping[str, Any]
NEVER, STATIC, OURS = "never", "static", "guarded"
SHOWN_EVENTS = 40
"""Changes of plan in the table, and of a loop that are marked over time; the JSON report has all."""


def sections(run: Run, prefix: str = "", of: str = "") -> tuple[Section, ...]:
    """prefix: of all names · of: which part of the traffic, for titles."""
    found = [_side_by_side(run, prefix, of)]
    if "timeline" in run:
        found.append(_over_time(run, prefix, of))
    found.append(_costs(run, prefix, of))
    return tuple(found)


def _side_by_side(run: Run, prefix: str, of: str) -> Section:
    best, never = best_of(run), run["loops"][0]
    lead = (
        f"Every loop served the same {run['trace']['windows'] - run['trace']['offline_windows']:,} windows. "
        f"{best['policy']} took the fewest seconds: it saves {saved_words(best)} against never re-planning."
        if best is not never
        else "Every loop served the same windows; never re-planning took the fewest seconds."
    )
    blocks: list[Block] = [_saved(run, prefix), _steps(run, prefix), _imbalance(run, prefix), _table(run, prefix)]
    return Section(name=f"{prefix}loops", title=f"Loops side by side{of}", lead=lead, blocks=tuple(blocks))


def _names(run: Run) -> tuple[str, ...]:
    return tuple(loop["policy"] for loop in run["loops"])


def _saved(run: Run, prefix: str) -> Figure:
    values = tuple(float(loop["saved_s_per_hour"]) for loop in run["loops"])
    worse = [loop["policy"] for loop in run["loops"] if loop["saved_s_per_hour"] < 0]
    ahead = [loop["policy"] for loop in run["loops"] if loop["saved_s_per_hour"] > 0]
    said = f"{many(len(ahead), 'loop')} of {len(values)} save time" if ahead else "No loop saves time"
    said += f"; {', '.join(worse)} cost more than they save." if worse else "."
    return Figure(
        name=f"{prefix}saved",
        title="Seconds saved per hour",
        alt=f"Bars of seconds saved per hour of serving against never re-planning, for {', '.join(_names(run))}.",
        conclusion=f"{said} Pauses are counted.",
        chart=Bars(
            rows=_names(run), row="loop", series=(Series(name="saved", values=values),),
            value="seconds saved per hour, pauses counted (more is better)", form="{:+,.2f}",
        ),
    )  # fmt: skip


def _steps(run: Run, prefix: str) -> Figure:
    found = run["loops"]
    paused = [loop for loop in found if loop["step_us_with_pauses"]["p99"] > loop["step_us"]["p99"]]
    least = min(found, key=lambda loop: loop["step_us_with_pauses"]["p99"])
    series = [
        Series(name="P50", values=tuple(loop["step_us"].get("p50") for loop in found)),
        Series(name="P99", values=tuple(loop["step_us"]["p99"] for loop in found)),
    ]
    if paused:
        series.append(
            Series(name="P99 with pauses", values=tuple(loop["step_us_with_pauses"]["p99"] for loop in found))
        )
    hit = f" Pauses lengthen the P99 of {', '.join(loop['policy'] for loop in paused)}." if paused else ""
    return Figure(
        name=f"{prefix}step_time",
        title="Time of a step",
        alt=f"Bars of the median and the 99th percentile of the step time for {', '.join(_names(run))}.",
        conclusion=f"{least['policy']} has the lowest P99 as requests see it, "
        f"{microseconds(least['step_us_with_pauses']['p99'])}.{hit}",
        chart=Bars(
            rows=_names(run), row="loop", series=tuple(series), value="time of a step, µs (less is better)",
            form="{:,.0f}",
        ),
    )  # fmt: skip


def _imbalance(run: Run, prefix: str) -> Figure:
    found = run["loops"]
    least = min(found, key=lambda loop: loop["rank_imbalance"]["mean"])
    return Figure(
        name=f"{prefix}imbalance",
        title="Rank imbalance",
        alt=f"Bars of the mean and 99th percentile of busiest over mean rank for {', '.join(_names(run))}; 1 is even.",
        conclusion=f"{least['policy']} is the most even: its busiest rank has on average "
        f"{least['rank_imbalance']['mean']:.3f} times the tokens of the mean rank, {found[0]['policy']} "
        f"{found[0]['rank_imbalance']['mean']:.3f}.",
        chart=Bars(
            rows=_names(run), row="loop",
            series=tuple(
                Series(name=name, values=tuple(loop["rank_imbalance"][key] for loop in found))
                for key, name in (("mean", "mean"), ("p99", "P99"))
            ),
            value="busiest / mean rank, over steps and layers (1 = even)", form="{:.3f}", start=1.0,
        ),
    )  # fmt: skip


def _table(run: Run, prefix: str) -> Table:
    columns = (
        "loop", "saved, s/h", "step P99, µs", "with pauses", "imbalance", "imbalance P99", "re-plans", "back and forth",
        "moved", "pauses, s", "longest, s", "pays after, steps",
    )  # fmt: skip
    return Table(
        name=f"{prefix}table",
        title="Loops in numbers",
        columns=columns,
        rows=tuple(_row(loop) for loop in run["loops"]),
        note="pays after: steps between two re-plans at which their mean pause is earned back · back and forth: "
        "re-plans that mostly took back the one before",
    )


def _row(loop: Run) -> tuple[str, ...]:
    steps = loop["break_even_steps"]
    return (
        loop["policy"],
        f"{loop['saved_s_per_hour']:+,.1f}",
        f"{loop['step_us']['p99']:,.0f}",
        f"{loop['step_us_with_pauses']['p99']:,.0f}",
        f"{loop['rank_imbalance']['mean']:.3f}",
        f"{loop['rank_imbalance']['p99']:.3f}",
        f"{loop['replans']:,}",
        f"{loop['oscillations']:,}",
        size(loop["bytes"]),
        f"{loop['pause_s']:,.2f}",
        f"{loop['longest_pause_s']:,.2f}",
        "–" if not steps else f"{steps:,.0f}",
    )


def shown_loops(run: Run) -> list[Run]:
    """Of which time courses are drawn: never, the best one, the advised one and ours, each once."""
    wanted = (NEVER, best_of(run)["policy"], advised_of(run)["policy"], OURS)
    return [loop for loop in run["loops"] if loop["policy"] in wanted]


def _over_time(run: Run, prefix: str, of: str) -> Section:
    x = tuple(float(window) for window in run["timeline"]["window"])
    shown = shown_loops(run)
    events = tuple(_events(run, shown))
    kinds = (("rank_imbalance", "busiest / mean rank"), ("step_us", "time of a step, µs"))
    panels = [
        Lines(
            lines=tuple(Line(name=loop["policy"], x=x, y=tuple(loop["timeline"][key])) for loop in shown),
            x="window", y=words, events=events,
        )
        for key, words in kinds
    ]  # fmt: skip
    names = ", ".join(loop["policy"] for loop in shown)
    first = Figure(
        name=f"{prefix}over_time",
        title="Balance and step time over time",
        alt=f"Lines over the windows of the trace for {names}: imbalance of ranks above, time of a step below; "
        f"vertical lines mark {many(len(events), 'event')}.",
        conclusion=f"{_steadiness(shown)} {_told(run)}".strip(),
        chart=Panels(panels=tuple(panels)),
    )
    return Section(
        name=f"{prefix}time",
        title=f"Over time{of}",
        lead="What the loops faced and what they made of it, window by window.",
        blocks=(first, _traffic(run, x, prefix)),
    )


def _steadiness(shown: Sequence[Run]) -> str:
    """How often the last of the loops was more even than the first, by windows."""
    first, last = (loop["timeline"]["rank_imbalance"] for loop in (shown[0], shown[-1]))
    both = [(old, new) for old, new in zip(first, last, strict=True) if old is not None and new is not None]
    if len(shown) < 2 or not both:
        return f"{shown[0]['policy']} alone is shown."
    better = sum(new < old for old, new in both) / len(both)
    return f"{shown[-1]['policy']} is more even than {shown[0]['policy']} in {100 * better:.0f} % of the windows shown."


def _told(run: Run) -> str:
    ours = next((loop for loop in run["loops"] if loop["policy"] == OURS), None)
    if ours is None:
        return ""
    return (
        f"{OURS} re-planned {many(ours['replans'], 'time')} and forgot older windows after "
        f"{many(len(ours['alarms']), 'alarm')}."
    )


def _events(run: Run, shown: Sequence[Run]) -> Iterator[Event]:
    for loop in shown:
        # A loop that re-plans all the time would hide its own course.
        for event in loop["events"] if len(loop["events"]) <= SHOWN_EVENTS else ():
            yield Event(x=float(event["window"]), name=f"{loop['policy']} re-plans")
        for window in loop["alarms"]:
            yield Event(x=float(window), name=f"{loop['policy']} alarm")


def _traffic(run: Run, x: tuple[float, ...], prefix: str) -> Figure:
    tokens = tuple(float(value) for value in run["timeline"]["tokens_per_step"])
    return Figure(
        name=f"{prefix}traffic",
        title="Tokens of a step over time",
        alt="A line over the windows of the trace: tokens of a step over all ranks.",
        conclusion=f"Steps hold {min(tokens):,.0f} to {max(tokens):,.0f} tokens; small ones are uneven by chance.",
        chart=Lines(lines=(Line(name="all loops", x=x, y=tokens),), x="window", y="tokens of a step", y_from=0.0),
    )


def _costs(run: Run, prefix: str, of: str) -> Section:
    movers = [loop for loop in run["loops"] if loop["bytes"]]
    if not movers:
        lead = "No loop changed its plan, so nothing moved and nothing paused."
        return Section(name=f"{prefix}costs", title=f"What re-planning costs{of}", lead=lead, blocks=())
    most = max(movers, key=lambda loop: loop["bytes"])
    stops = [loop for loop in movers if loop["pause_s"] > 0]
    longest = max(stops, key=lambda loop: loop["longest_pause_s"], default=None)
    lead = f"{most['policy']} moved most, {size(most['bytes'])} in {many(most['replans'], 're-plan')}. " + (
        "No loop stopped serving."
        if longest is None
        else f"The longest stop is {longest['longest_pause_s']:,.2f} s, by {longest['policy']}."
    )
    blocks: list[Block] = [_front(run, prefix)]
    if stops:
        blocks.append(_pauses(run, stops, prefix))
    blocks += [_changes(loop, prefix) for loop in shown_loops(run) if loop["events"]]
    return Section(name=f"{prefix}costs", title=f"What re-planning costs{of}", lead=lead, blocks=tuple(blocks))


def _front(run: Run, prefix: str) -> Figure:
    hours = max(run["loops"][0]["seconds"] / HOUR_S, 1e-12)
    best = best_of(run)
    points = marked(
        [
            Choice(name=loop["policy"], price=loop["bytes"] / 1e9 / hours, worth=loop["saved_s_per_hour"])
            for loop in run["loops"]
        ],
        advised_of(run)["policy"],
    )
    front = ", ".join(point.name for point in points if point.on_front)
    knee = next((point.name for point in points if point.knee), None)
    said = "There is no knee." if sum(point.on_front for point in points) > 1 else "Moving bytes saves nothing."
    said = f"The knee is {knee}{_beyond(points)}." if knee else said
    return Figure(
        name=f"{prefix}front",
        title="Seconds saved against bytes moved",
        alt="Loops as points: GB moved per hour to the right, seconds saved per hour upwards; filled ones are beaten "
        f"by none: {front}.",
        conclusion=f"Nothing beats {front} in both. {said} Saving most: {best['policy']}; advised: "
        f"{advised_of(run)['policy']}, the ring.",
        chart=Front(
            curves=(("loops", points),), x="GB moved per hour", y="seconds saved per hour (more is better)",
        ),
    )  # fmt: skip


def _beyond(points: Sequence[Point]) -> str:
    """What the next point on the front after the knee adds to it, in bytes and in time."""
    front = [point for point in points if point.on_front]
    place = next((number for number, point in enumerate(front) if point.knee), len(front))
    if place + 1 >= len(front):
        return ""
    knee, after = front[place : place + 2]
    return (
        f"; {after.name} moves {size(1e9 * (after.x - knee.x))} per hour more and saves {after.y - knee.y:,.1f} s per "
        "hour more"
    )


def _pauses(run: Run, stops: Sequence[Run], prefix: str) -> Figure:
    rows = tuple(loop["policy"] for loop in stops)
    lost = max(stops, key=lambda loop: loop["pause_s"])
    return Figure(
        name=f"{prefix}pauses",
        title="Seconds without serving",
        alt=f"Bars of all pauses together and of the longest one for {', '.join(rows)}.",
        conclusion=f"{lost['policy']} stops longest, {lost['pause_s']:,.2f} s of {lost['seconds']:,.1f} s in "
        f"{many(lost['pauses'], 'pause')}.",
        chart=Bars(
            rows=rows, row="loop",
            series=(
                Series(name="all pauses", values=tuple(loop["pause_s"] for loop in stops)),
                Series(name="the longest", values=tuple(loop["longest_pause_s"] for loop in stops)),
            ),
            value="seconds (less is better)",
        ),
    )  # fmt: skip


def _changes(loop: Run, prefix: str) -> Table:
    events = loop["events"]
    left = len(events) - SHOWN_EVENTS
    return Table(
        name=f"{prefix}changes_{loop['policy'].replace('-', '_')}",
        title=f"Changes of plan by {loop['policy']}",
        columns=("after window", "experts", "bytes", "pause, s", "steps served", "saved, s", "step P99, µs", "without"),
        rows=tuple(_change(event) for event in events[:SHOWN_EVENTS]),
        note="saved and P99: of the steps that the plan served, against the plan before it"
        + (f" · {left} more in the JSON report" if left > 0 else ""),
    )


def _change(event: Run) -> tuple[str, ...]:
    p99, without = event["step_p99_us"], event["step_p99_us_without"]
    back = ", takes back the one before" if event["oscillates"] else ""
    return (
        f"{event['window']:,}",
        f"{event['moves']:,}{back}",
        size(event["bytes"]),
        f"{event['pause_s']:,.2f}",
        f"{event['steps']:,.0f}",
        f"{event['saved_s']:+,.2f}",
        "–" if p99 is None else f"{p99:,.0f}",
        "–" if without is None else f"{without:,.0f}",
    )
