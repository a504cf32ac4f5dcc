"""Does it hold up under traffic and on clusters that nobody planned for?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Figure, Section, Table
from easybalance_sim.report.sections.sides import SIDES
from easybalance_sim.report.words import listed, many

TIE = 0.02
"""Of a P99 step: less is no difference, as in the gate's own limits."""
CERTAINTY, MOST_CASES = 2.0, 60
"""Standard errors that a ratio is known within; cases that the table shows, the worst of them where there are more."""

Case = Mapping[str, Any]


def section(report: Mapping[str, Any]) -> Section | None:
    """The worst case of each scenario as bars, the cases as a table; None for a report without stress."""
    stress = report.get("stress")
    if not stress:
        return None
    cases = [(name, case) for name, scenario in stress.items() for case in scenario["cases"]]
    why = [f"{name}: {scenario['not_judged']}" for name, scenario in stress.items() if scenario["not_judged"]]
    if not cases:
        return Section(name="stress", title="Under stress", lead=f"Nothing was judged: {'; '.join(why)}.", blocks=())
    left = f" Not judged: {'; '.join(why)}." if why else ""
    return Section(
        name="stress",
        title="Under stress",
        lead=f"Traffic and clusters that the plan was not made for, against the baseline under the same stress.{left}",
        blocks=(_bars(stress), _table(cases)),
    )


def _certain(case: Case) -> float:
    """What the plan's P99 step is at least, over the baseline's."""
    over: float = case["over_baseline"]["step_p99"] - CERTAINTY * case["over_baseline"]["step_p99_noise"]
    return over


def _worst(scenario: Mapping[str, Any]) -> Case:
    case: Case = max(scenario["cases"], key=_certain)
    return case


def _told(stress: Mapping[str, Any]) -> str:
    worst = {name: _worst(scenario) for name, scenario in stress.items() if scenario["cases"]}
    slower = [name for name, case in worst.items() if _certain(case) > 1 + TIE]
    faster = [
        name
        for name, case in worst.items()
        if case["over_baseline"]["step_p99"] + CERTAINTY * case["over_baseline"]["step_p99_noise"] < 1 - TIE
    ]
    said = f"In the worst case of {many(len(worst), 'scenario')} the plan's P99 step"
    if not slower and not faster:
        return f"{said} is within {100 * TIE:.0f} % of the baseline's: it holds up, and wins no time."
    parts = [f"faster than the baseline's in {listed(faster)}"] * bool(faster)
    parts += [f"slower in {listed(slower)}" if slower else "slower in none"]
    return f"{said} is {' and '.join(parts)} (by more than {100 * TIE:.0f} % and than chance)."


def _bars(stress: Mapping[str, Any]) -> Figure:
    found = [(name, _worst(scenario)) for name, scenario in stress.items() if scenario["cases"]]
    series = []
    for key, name in (("step_p99", "P99 step"), ("imbalance_p99", "P99 rank imbalance")):
        values = [case["over_baseline"][key] for _, case in found]
        noise = [CERTAINTY * case["over_baseline"][f"{key}_noise"] for _, case in found]
        spread = tuple((max(0.0, value - far), value + far) for value, far in zip(values, noise, strict=True))
        series.append(Series(name=name, values=tuple(values), spread=spread))
    told = ", ".join(
        f"{name} {over['step_p99']:.3f} (step) and {over['imbalance_p99']:.3f} (imbalance)"
        for name, over in ((name, case["over_baseline"]) for name, case in found)
    )
    return Figure(
        name="stress",
        title="The plan's P99 over the baseline's, worst case of each scenario",
        alt=f"Bars of ratios, 1 = as the baseline: {told}.",
        conclusion=f"{_told(stress)} Under 1 the plan is better; the marks are two standard errors.",
        chart=Bars(
            rows=tuple(name if case["name"] == name else f"{name}: {case['name']}" for name, case in found),
            row="scenario", series=tuple(series), value="plan / baseline", form="{:.3f}", start=1.0,
            bound=(1.0, "as the baseline"),
        ),
    )  # fmt: skip


def _table(cases: list[tuple[str, Case]]) -> Table:
    shown = sorted(cases, key=lambda one: -_certain(one[1]))[:MOST_CASES]
    rows = tuple(
        (
            scenario, case["name"],
            *(" → ".join(f"{case[side][key][stat]:{form}}" for side in SIDES) for key, stat, form in _COLUMNS),
            f"{case['over_baseline']['step_p99']:.3f}", _lost(case),
        )
        for scenario, case in shown
    )  # fmt: skip
    return Table(
        name="stress_cases",
        title="Cases, the worst for the plan first",
        columns=(
            "scenario",
            "case",
            "imbalance mean",
            "imbalance P99",
            "P99 step, µs",
            "plan / baseline",
            "experts lost",
        ),
        rows=rows,
        note=f"{len(shown)} of {len(cases)} cases; every pair is baseline → plan.",
    )


_COLUMNS = (("rank_imbalance", "mean", ".3f"), ("rank_imbalance", "p99", ".3f"), ("step_us", "p99", ",.0f"))


def _lost(case: Case) -> str:
    """Experts without a copy when a node or rank is lost."""
    if "experts_lost" not in case["plan"]:
        return "–"
    return f"{case['baseline']['experts_lost']:,} → {case['plan']['experts_lost']:,}"
