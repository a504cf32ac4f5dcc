"""The `stress` section of a report before the gate: one finding per scenario, and two over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from easybalance_sim.errors import CriteriaError
from easybalance_sim.gate.criteria import BURST, MIX_CHANGE, NODE_LOSS, SCENARIOS, Criteria
from easybalance_sim.gate.reading import number, value
from easybalance_sim.gate.verdict import NOT_JUDGED, Finding

CERTAINTY = 2.0
"""Standard errors by which a ratio must exceed its limit before it counts against a plan."""

_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A P99 of the plan (`after`) over the baseline's in one case of a scenario; noise: its standard error."""

    scenario: str
    case: str
    before: float
    after: float
    ratio: float
    noise: float

    @property
    def certain(self) -> float:
        """What the ratio is at least, as far as chance allows to say."""
        return self.ratio - CERTAINTY * self.noise


def stress_findings(report: Mapping[str, Any], criteria: Criteria) -> tuple[Finding, ...]:
    """None for a report without stress. Raises `CriteriaError` as `judge`."""
    if "stress" not in report:
        return ()
    by_scenario = [_scenario(report, name, criteria) for name in SCENARIOS]
    return (*by_scenario, _imbalance(report, criteria), _lost_experts(report, criteria))


def worst_step(report: Mapping[str, Any], scenario: str) -> Ratio:
    """The P99 step time of the case that speaks most against the plan."""
    return _worst(_ratios(report, scenario, "step_us.p99", "step_p99"))


def worst_loss(report: Mapping[str, Any]) -> dict[str, Any]:
    """The case of node loss that leaves the largest share of the plan's experts without a copy."""
    cases = _cases(report, NODE_LOSS)
    case: dict[str, Any] = cases[max(cases, key=lambda under: number(cases[under], "plan.experts_lost_frac", under))]
    return case


def _scenario(report: Mapping[str, Any], name: str, criteria: Criteria) -> Finding:
    limit = criteria.stress_p99_over_baseline_max_of.get(name, criteria.stress_p99_over_baseline_max)
    why_not = value(report, f"stress.{name}.not_judged")
    if value(report, "model.assumed"):
        why_not = "the model's widths are not known (say --model)"
    if why_not:
        return _not_judged(f"stress.{name}", limit, why_not)
    found = worst_step(report, name)
    note = f"P99 step {found.before:.0f} → {found.after:.0f} µs, worst: {found.case}"
    return _at_most(f"stress.{name}", limit, found, note)


def _imbalance(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    """Of other mixes and bursts; elsewhere a plan has nothing to promise but time."""
    name, limit = "stress.imbalance", criteria.stress_p99_imbalance_over_baseline_max
    both = (_ratios(report, scenario, "rank_imbalance.p99", "imbalance_p99") for scenario in (MIX_CHANGE, BURST))
    ratios = [one for found in both for one in found]
    if not ratios:
        return _not_judged(name, limit, value(report, f"stress.{BURST}.not_judged"))
    found = _worst(ratios)
    note = f"P99 rank imbalance {found.before:.3f} → {found.after:.3f}, worst: {found.scenario} {found.case}"
    return _at_most(name, limit, found, note)


def _lost_experts(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    name, limit = "stress.lost-experts", criteria.stress_lost_experts_frac_max
    if not _cases(report, NODE_LOSS):
        return _not_judged(name, limit, value(report, f"stress.{NODE_LOSS}.not_judged"))
    case, under = worst_loss(report), f"stress.{NODE_LOSS} worst."
    lost = number(case, "plan.experts_lost_frac", under)
    before, after = (number(case, f"{side}.experts_lost", under) for side in ("baseline", "plan"))
    note = f"experts without a copy {before:,} → {after:,}, worst: {value(case, 'name', under)}"
    return Finding(criterion=name, limit=limit, observed=lost, ok=lost <= limit + _ROUNDING, note=note)


def _worst(ratios: list[Ratio]) -> Ratio:
    return max(ratios, key=lambda one: one.certain)


def _not_judged(name: str, limit: float, why: str) -> Finding:
    return Finding(criterion=name, limit=limit, observed=None, ok=True, note=f"{NOT_JUDGED}{why}")


def _at_most(name: str, limit: float, found: Ratio, note: str) -> Finding:
    noise = f" (±{found.noise:.2g})" if found.noise else ""
    return Finding(
        criterion=name,
        limit=limit,
        observed=found.ratio,
        ok=found.certain <= limit + _ROUNDING,
        note=f"{note}{noise}",
    )


def _ratios(report: Mapping[str, Any], scenario: str, figure: str, ratio: str) -> list[Ratio]:
    return [
        Ratio(
            scenario=scenario,
            case=str(value(case, "name", under)),
            before=number(case, f"baseline.{figure}", under),
            after=number(case, f"plan.{figure}", under),
            ratio=number(case, f"over_baseline.{ratio}", under),
            noise=number(case, f"over_baseline.{ratio}_noise", under),
        )
        for under, case in _cases(report, scenario).items()
    ]


def _cases(report: Mapping[str, Any], scenario: str) -> dict[str, Any]:
    """The cases of a scenario by their path in the report."""
    path = f"stress.{scenario}.cases"
    cases = value(report, path)
    if not isinstance(cases, list):
        raise CriteriaError(f"is {cases!r}, expected a list", where=f"report {path}")
    if not cases and not value(report, f"stress.{scenario}.not_judged"):
        raise CriteriaError("has no case and no reason for that", where=f"report stress.{scenario}")
    return {f"{path}[{number}].": case for number, case in enumerate(cases)}
