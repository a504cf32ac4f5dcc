"""The `stress` section of a report as text: a line per scenario, of the case that speaks most against the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli.layout import filled, noted

_HEAD = ("", "under stress", "imbalance mean", "P99", "P99 step, µs", "change")


def of_stress(report: Mapping[str, Any]) -> list[str]:
    """The block, none for a report without stress; every pair is baseline → plan."""
    if "stress" not in report:
        return []
    findings = {finding["criterion"]: finding for finding in report["verdict"]["findings"]}
    rows, notes = [_HEAD], [""]
    for name, scenario in report["stress"].items():
        worst, cells = _worst(report, name) if scenario["cases"] else ("", ("–",) * len(_HEAD[2:]))
        rows.append((_mark(findings[f"stress.{name}"]), name, *cells))
        notes.append(f"worst case: {worst}" if worst != name and scenario["cases"] else "")
    whys = [f"{name}: {of['not_judged']}" for name, of in report["stress"].items() if of["not_judged"]]
    below = map(filled, [*whys, *_lost(report), *_left_out(report["stress"])])
    return ["\n".join([noted(rows, notes, left=2), *below])]


def _mark(finding: Mapping[str, Any]) -> str:
    if finding["observed"] is None:
        return "–"
    return "ok" if finding["ok"] else "NO"


def _worst(report: Mapping[str, Any], name: str) -> tuple[str, tuple[str, ...]]:
    """The worst case of a scenario, and its cells."""
    from easybalance_sim.gate.stress import worst_step

    worst = worst_step(report, name).case
    case = next(case for case in report["stress"][name]["cases"] if case["name"] == worst)
    return worst, (
        _pair(case, "rank_imbalance", "mean", "{:.3f}"),
        _pair(case, "rank_imbalance", "p99", "{:.3f}"),
        _pair(case, "step_us", "p99", "{:,.0f}"),
        f"{100 * (case['over_baseline']['step_p99'] - 1):+.1f} %",
    )


def _pair(case: Mapping[str, Any], section: str, figure: str, form: str) -> str:
    return " → ".join(form.format(case[side][section][figure]) for side in ("baseline", "plan"))


def _lost(report: Mapping[str, Any]) -> list[str]:
    """The case that the gate judges by, which need not be the slowest one."""
    from easybalance_sim.gate.stress import worst_loss

    if not report["stress"]["node-loss"]["cases"]:
        return []
    case = worst_loss(report)
    before, after = case["baseline"]["experts_lost"], case["plan"]["experts_lost"]
    size = case["plan"]["mend_bytes"]
    to_fetch = f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
    return [
        f"experts without a copy when {case['name']} is lost (worst case): {before:,} → {after:,}, "
        f"{to_fetch} to fetch again"
    ]


def _left_out(stress: Mapping[str, Any]) -> list[str]:
    names = stress["mix-change"].get("left_out")
    return [f"no mix is made of: {', '.join(names)} (few requests, or beyond the largest kinds)"] if names else []
