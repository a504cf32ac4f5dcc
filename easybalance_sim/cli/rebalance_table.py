"""The tables of `ebsim rebalance`."""

from __future__ import annotations

from typing import Any

from easybalance_sim.cli.console import aligned

GB, US = 1e9, 1e6


def of(report: dict[str, Any]) -> str:
    """The table of a run, of its strata, or of a sweep."""
    if "strata" in report:
        return "\n\n".join(f"{report['by']} {name}\n{_run(one)}" for name, one in report["strata"].items())
    return _sweep(report) if "rows" in report else _run(report)


def _run(report: dict[str, Any]) -> str:
    head = (
        "loop", "saved s/h", "step P99, µs", "with pauses", "imbalance", "P99", "re-plans", "back and forth",
        "GB moved", "pauses, s", "longest, s", "pays after",
    )  # fmt: skip
    rows = [head, *(_loop(section) for section in report["loops"])]
    parts = [_head(report), aligned(rows), *_events(report)]
    return "\n\n".join(parts)


def _head(report: dict[str, Any]) -> str:
    trace, cluster = report["trace"], report["cluster"]
    served = trace["windows"] - trace["offline_windows"]
    hours = report["loops"][0]["seconds"] / 3600 if "loops" in report else 0.0
    lasted = f", {hours:,.2f} h of serving" if hours >= 0.01 else ""
    return "\n".join(
        [
            f"{cluster['ranks']} ranks × {cluster['slots_per_rank']} slots, {served:,} windows of "
            f"{trace['steps'] / served:,.0f} steps of {trace['tokens_per_step']:,.0f} tokens served{lasted}",
            f"the offline plan is {report['offline_policy']}, from {trace['offline_windows']:,} windows before them",
            f"seconds: {report['cost']['label']}; a step is its MoE layers{_beside(report['cost']['other_us'])}",
        ]
    )


def _beside(other_us: float) -> str:
    return f" and {other_us / 1e3:g} ms" if other_us else " alone, so what is saved is of their hours (--other-ms)"


def _loop(section: dict[str, Any]) -> tuple[str, ...]:
    steps = section["break_even_steps"]
    return (
        section["policy"],
        f"{section['saved_s_per_hour']:+,.1f}",
        f"{section['step_us']['p99']:,.0f}",
        f"{section['step_us_with_pauses']['p99']:,.0f}",
        f"{section['rank_imbalance']['mean']:.3f}",
        f"{section['rank_imbalance']['p99']:.3f}",
        f"{section['replans']:,}",
        f"{section['oscillations']:,}",
        f"{section['bytes'] / GB:,.2f}",
        f"{section['pause_s']:,.2f}",
        f"{section['longest_pause_s']:,.2f}",
        "–" if not steps else f"{steps:,.0f} steps",
    )


def _events(report: dict[str, Any]) -> list[str]:
    """What ours did, and why."""
    ours = next((section for section in report["loops"] if section["policy"] == "guarded"), None)
    if ours is None:
        return []
    lines = [f"guarded: {len(ours['alarms'])} alarms, {len(ours['events'])} re-plans"]
    for event in ours["events"]:
        back = ", takes back the change before" if event["oscillates"] else ""
        lines.append(
            f"  after window {event['window']:,}: {event['moves']:,} experts, {event['bytes'] / GB:.3g} GB{back}"
        )
    return ["\n".join(lines)]


def _sweep(report: dict[str, Any]) -> str:
    head = ("loop", "setting", "saved s/h, chosen on", "judged on", "step P99, µs", "re-plans", "GB moved", "")
    best = [row["setting"] | {"family": row["family"]} for row in report["chosen"].values()]
    rows = [head]
    for row in report["rows"]:
        judged = row["judged_on"]
        setting = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in row["setting"].items())
        rows.append(
            (
                row["family"],
                setting,
                f"{row['chosen_on']['saved_s_per_hour']:+,.1f}",
                f"{judged['saved_s_per_hour']:+,.1f}",
                f"{judged['step_us']['p99']:,.0f}",
                f"{judged['replans']:,}",
                f"{judged['bytes'] / GB:,.2f}",
                "←" if row["setting"] | {"family": row["family"]} in best else "",
            )
        )
    return f"{_head(report)}\n\n{aligned(rows, left=2)}\n\n← fewest seconds on the first half, by loop"
