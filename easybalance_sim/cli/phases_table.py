"""Two plans as text for people: one table after the other, then each plan on the traffic of the other phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.cli import report_table
from easybalance_sim.cli.layout import aligned, filled
from easybalance_sim.report.words import percent

_ROWS = (
    ("rank imbalance, mean", ("rank_imbalance", "mean"), "{:.3f}"),
    ("  P99", ("rank_imbalance", "p99"), "{:.3f}"),
    ("layer time P99, µs", ("layer_us", "p99"), "{:.1f}"),
    ("active experts per rank", ("active_experts_per_rank", "mean"), "{:.2f}"),
)


def of_phases(report: Mapping[str, Any]) -> str:
    """The tables that `ebsim plan --per-phase` prints."""
    parts = [f"=== {phase} ===\n\n{report_table.of_plan(one)}" for phase, one in report["phases"].items()]
    if report["cross"] is not None:
        parts.append(f"=== each plan on either traffic ===\n\n{_cross(report['cross'])}")
    return "\n\n".join(parts)


def _cross(cross: Mapping[str, Any]) -> str:
    on: Mapping[str, Any] = cross["on"]
    rows = [("", *(f"plan for {phase}" for phase in on))]
    for traffic, plans in on.items():
        rows.append((f"{traffic} traffic", *("" for _ in plans)))
        for label, (section, name), form in _ROWS:
            rows.append((f"  {label}", *(form.format(plan[section][name]) for plan in plans.values())))
    return "\n".join(
        [
            filled(
                f"the plans differ in {cross['differing_experts']:,} of {cross['placed_experts']:,} placed experts, "
                "ranks renamed where that is free"
            ),
            aligned(rows),
            filled(_worth(on)),
        ]
    )


def _worth(on: Mapping[str, Any]) -> str:
    """What the plan of the other phase would cost."""
    from easybalance_sim.planning.candidates import TIE_FRAC

    prices = []
    for traffic, plans in on.items():
        (other,) = (phase for phase in plans if phase != traffic)
        own, foreign = plans[traffic]["layer_us"]["p99"], plans[other]["layer_us"]["p99"]
        prices.append(f"{percent(foreign / own - 1)} in {traffic}")
    told = f"under {100 * TIE_FRAC:.0f} % is a tie of the cost model"
    return f"P99 layer time with the other phase's plan: {', '.join(prices)}; {told}"
