"""The `stress` section of a report as text: a line per scenario, of the case that speaks most against the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.console import aligned

_HEAD = (
    "",
    "under stress",
    "worst case",
    "imbalance mean",
    "P99",
    "P99 step, µs",
    "change",
    "experts lost",
    "to fetch",
)


def of_stress(report: Mapping[str, Any]) -> list[str]:
    """The block, none for a report without stress; every pair is baseline → plan."""
    if "stress" not in report:
        return []
    ok = {finding["criterion"]: finding["ok"] for finding in report["verdict"]["findings"]}
    rows = [_HEAD]
    for name, scenario in report["stress"].items():
        mark = "ok" if ok[f"stress.{name}"] else "NO"
        rows.append(
            (mark, name, *_worst(report, name)) if scenario["cases"] else ("–", name, *("–" for _ in _HEAD[2:]))
        )
    whys = [f"{name}: {of['not_judged']}" for name, of in report["stress"].items() if of["not_judged"]]
    return ["\n".join([aligned(rows, left=3), *whys])]


def _worst(report: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Cells of the worst case of a scenario."""
    from easybalance_sim.gate.stress import worst_step

    worst = worst_step(report, name).case
    case = next(case for case in report["stress"][name]["cases"] if case["name"] == worst)
    change = 100 * (case["over_baseline"]["step_p99"] - 1)
    cells = (
        worst,
        _pair(case, "rank_imbalance", "mean", "{:.3f}"),
        _pair(case, "rank_imbalance", "p99", "{:.3f}"),
        _pair(case, "step_us", "p99", "{:.0f}"),
        f"{change:+.1f} %",
    )
    plan = case["plan"]
    if "experts_lost" not in plan:
        return (*cells, "", "")
    return (
        *cells,
        f"{case['baseline']['experts_lost']:,} → {plan['experts_lost']:,}",
        f"{plan['mend_bytes'] / 1e6:,.1f} MB",
    )


def _pair(case: Mapping[str, Any], section: str, figure: str, form: str) -> str:
    return " → ".join(form.format(case[side][section][figure]) for side in ("baseline", "plan"))
