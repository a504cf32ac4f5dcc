"""Does it hold up under traffic and on clusters that nobody planned for?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.stress import CERTAINTY
from easybalance_sim.report.charts.bars import Bars, Series
from easybalance_sim.report.content import Figure, Section, Table
from easybalance_sim.report.sections.sides import SIDES
from easybalance_sim.report.words import listed, many

TIE = load_criteria(None).p99_layer_time_growth_max
"""Of a P99: less is no difference, as in the gate's default limits."""
MOST_CASES = 60
"""That the table shows, the worst of them where there are more."""
NAMES = {"step_p99": "P99 step", "imbalance_p99": "P99 rank imbalance"}
WORDS = {"step_p99": ("slower", "faster"), "imbalance_p99": ("higher", "lower")}

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
        lead=f"{_told(stress, _judged(report))}{left}",
        blocks=(_bars(stress, _judged(report)), _table(cases, _judged(report))),
    )


def _ends(case: Case, figure: str) -> tuple[float, float]:
    """What a ratio of the plan over the baseline is at least and at most, as far as chance allows to say."""
    over = case["over_baseline"]
    far = CERTAINTY * over[f"{figure}_noise"]
    return over[figure] - far, over[figure] + far


def _worst(scenario: Mapping[str, Any], figure: str) -> Case:
    """As the gate takes it."""
    case: Case = max(scenario["cases"], key=lambda case: _ends(case, figure)[0])
    return case


def _judged(report: Mapping[str, Any]) -> str:
    """Seconds, or what is known without the model's widths."""
    return "imbalance_p99" if report["model"]["assumed"] else "step_p99"


def _told(stress: Mapping[str, Any], figure: str) -> str:
    """Slower, faster, within or not told from chance: over all cases of each scenario."""
    found: dict[str, list[str]] = {kind: [] for kind in ("higher", "lower", "within", "unclear")}
    most = 0.0
    for name, scenario in stress.items():
        if not scenario["cases"]:
            continue
        low, high = (max(ends) for ends in zip(*(_ends(case, figure) for case in scenario["cases"]), strict=True))
        kind = _kind(low, high, min(_ends(case, figure)[0] for case in scenario["cases"]))
        found[kind].append(name)
        most = max(most, high - 1) if kind == "unclear" else most
    said = f"In the worst case of {many(sum(map(len, found.values())), 'scenario')} the plan's {NAMES[figure]}"
    within = f"within {100 * TIE:.0f} % of the baseline's"
    if not (found["higher"] or found["lower"] or found["unclear"]):
        return f"{said} is {within}: it holds up, and wins {'no time' if figure == 'step_p99' else 'nothing'}."
    words = zip(("higher", "lower"), WORDS[figure], strict=True)
    parts = [f"{word} than the baseline's in {listed(found[kind])}" for kind, word in words if found[kind]]
    parts += [f"{within} in {listed(found['within'])}"] * bool(found["within"])
    if found["unclear"]:
        parts.append(f"not to be told from chance in {listed(found['unclear'])} (up to {100 * most:+.0f} %)")
    return f"{said} is {'; '.join(parts)}."


def _kind(worst: float, most: float, least: float) -> str:
    """worst: the largest of what cases are at least · most, least: of all cases."""
    if worst > 1 + TIE:
        return "higher"
    if most < 1 - TIE:
        return "lower"
    return "within" if least >= 1 - TIE and most <= 1 + TIE else "unclear"


def _bars(stress: Mapping[str, Any], figure: str) -> Figure:
    """By scenario the worst case of `figure`; of ratios of assumed seconds none."""
    found = [(name, _worst(scenario, figure)) for name, scenario in stress.items() if scenario["cases"]]
    series = []
    for key in NAMES if figure == "step_p99" else (figure,):
        values = [case["over_baseline"][key] for _, case in found]
        noise = [CERTAINTY * case["over_baseline"][f"{key}_noise"] for _, case in found]
        spread = tuple((max(0.0, value - far), value + far) for value, far in zip(values, noise, strict=True))
        series.append(Series(name=NAMES[key], values=tuple(values), spread=spread))
    told = "; ".join(
        f"{one.name}: " + ", ".join(f"{name} {value:.3f}" for (name, _), value in zip(found, one.values, strict=True))
        for one in series
    )
    return Figure(
        name="stress",
        title="The plan's P99 over the baseline's, worst case of each scenario",
        alt=f"Bars of ratios, 1 = as the baseline: {told}.",
        conclusion="Traffic and clusters that the plan was not made for, plan and baseline under the same stress. "
        "Under 1 the plan is better; the marks are two standard errors. "
        f"{' or '.join(WORDS[figure]).capitalize()} is what is so by more than {100 * TIE:.0f} % and than chance.",
        chart=Bars(
            rows=tuple(name if case["name"] == name else f"{name}: {case['name']}" for name, case in found),
            row="scenario", series=tuple(series), value="plan / baseline", form="{:.3f}", start=1.0,
            bound=(1.0, "as the baseline"),
        ),
    )  # fmt: skip


def _table(cases: list[tuple[str, Case]], figure: str) -> Table:
    shown = sorted(cases, key=lambda one: -_ends(one[1], figure)[0])[:MOST_CASES]
    rows = tuple(
        (
            scenario, case["name"],
            *(" → ".join(f"{case[side][key][stat]:{form}}" for side in SIDES) for key, stat, form in _COLUMNS),
            f"{case['over_baseline'][figure]:.3f}", _lost(case),
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
            f"{NAMES[figure]}, plan / baseline",
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
