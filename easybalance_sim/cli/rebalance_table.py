"""The tables of `ebsim rebalance`."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cli.layout import aligned, filled
from easybalance_sim.report.rebalance_words import HOUR_S, alone_or, answer
from easybalance_sim.report.words import amount

GB, US = 1e9, 1e6


def of(report: dict[str, Any]) -> str:
    """The table of a run, of its strata, or of a sweep."""
    if "strata" in report:
        return "\n\n".join(f"{report['by']} {name}\n{_run(one)}" for name, one in report["strata"].items())
    return _sweep(report) if "rows" in report else _run(report)


def _run(report: dict[str, Any]) -> str:
    gains: list[tuple[str, ...]] = [
        ("loop", "saved s/h", "step P99, µs", "with pauses", "imbalance", "P99", "pays after, steps")
    ]
    gains += [_gains(section) for section in report["loops"]]
    costs: list[tuple[str, ...]] = [("loop", "re-plans", "back and forth", "GB moved", "pauses, s", "longest, s")]
    costs += [_costs(section) for section in report["loops"]]
    head = "\n".join([filled(": ".join(answer(report))), _head(report)])
    return "\n\n".join([head, aligned(gains), aligned(costs), *_events(report)])


def _head(report: dict[str, Any]) -> str:
    trace, cluster = report["trace"], report["cluster"]
    served = trace["windows"] - trace["offline_windows"]
    hours = report["loops"][0]["seconds"] / HOUR_S if "loops" in report else 0.0
    lasted = f", {hours:,.2f} h of serving" if hours >= 0.01 else ""
    other_us = report["cost"]["other_us"]
    option = "" if other_us else " (--other-ms)"
    lines = [
        f"{cluster['ranks']} ranks × {cluster['slots_per_rank']} slots, {served:,} windows of "
        f"{trace['steps'] / served:,.0f} steps of {trace['tokens_per_step']:,.0f} tokens served{lasted}",
        f"the offline plan is {report['offline_policy']}, from {trace['offline_windows']:,} windows before them",
        f"seconds: {report['cost']['label']}; a step is its MoE layers {alone_or(other_us)}{option}",
    ]
    return "\n".join(map(filled, lines))


def _gains(section: dict[str, Any]) -> tuple[str, ...]:
    steps = section["break_even_steps"]
    return (
        section["policy"],
        f"{section['saved_s_per_hour']:+,.1f}",
        f"{section['step_us']['p99']:,.0f}",
        f"{section['step_us_with_pauses']['p99']:,.0f}",
        f"{section['rank_imbalance']['mean']:.3f}",
        f"{section['rank_imbalance']['p99']:.3f}",
        amount(steps) if steps else "–",
    )


def _costs(section: dict[str, Any]) -> tuple[str, ...]:
    return (
        section["policy"],
        f"{section['replans']:,}",
        f"{section['oscillations']:,}",
        f"{section['bytes'] / GB:,.2f}",
        f"{section['pause_s']:,.2f}",
        f"{section['longest_pause_s']:,.2f}",
    )


def _events(report: dict[str, Any]) -> list[str]:
    """What ours did, and why."""
    ours = next((section for section in report["loops"] if section["policy"] == "guarded"), None)
    if ours is None:
        return []
    lines = [f"guarded: {len(ours['alarms'])} alarms, {len(ours['events'])} re-plans"]
    for event in ours["events"]:
        back = ", takes back the change before" if event["oscillates"] else ""
        moved = f"{event['moves']:,} experts, {event['bytes'] / GB:.3g} GB"
        lines.append(filled(f"after window {event['window']:,}: {moved}{back}", first="  ", then="    "))
    return ["\n".join(lines)]


def _sweep(report: dict[str, Any]) -> str:
    """A table for loops with the same settings."""
    best = [(row["family"], row["setting"]) for row in report["chosen"].values()]
    tables: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in report["rows"]:
        names = tuple(row["setting"])
        head = ("", "loop", *(name.replace("_", " ") for name in names), *_JUDGED)
        mark = "→" if (row["family"], row["setting"]) in best else ""
        cells = (mark, row["family"], *(f"{value:g}" for value in row["setting"].values()), *_judged(row))
        tables.setdefault(names, [head]).append(cells)
    legend = "→ fewest seconds on the first half, by loop; saved: s/h on the half that chose, and on the other one"
    return "\n\n".join([_head(report), *(aligned(rows, left=2) for rows in tables.values()), filled(legend)])


_JUDGED = ("saved, chosen on", "judged on", "step P99, µs", "re-plans", "GB moved")


def _judged(row: dict[str, Any]) -> tuple[str, ...]:
    judged = row["judged_on"]
    return (
        f"{row['chosen_on']['saved_s_per_hour']:+,.1f}",
        f"{judged['saved_s_per_hour']:+,.1f}",
        f"{judged['step_us']['p99']:,.0f}",
        f"{judged['replans']:,}",
        f"{judged['bytes'] / GB:,.2f}",
    )
