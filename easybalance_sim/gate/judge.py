"""`judge`: a replay report against the criteria. Reads nothing but the report's JSON object, so it can be re-run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from easybalance_sim.errors import CriteriaError
from easybalance_sim.gate.criteria import Criteria
from easybalance_sim.gate.reading import number, value
from easybalance_sim.gate.stress import stress_findings
from easybalance_sim.gate.verdict import ACCEPTED, INSUFFICIENT_EVIDENCE, NOT_JUDGED, REJECTED, Finding, Verdict

_ROUNDING = 1e-9
"""So that a plan that meets a limit exactly is not refused over the last bit of a quotient."""


def judge(report: Mapping[str, Any], criteria: Criteria) -> Verdict:
    """The verdict on the JSON object that `ebsim plan` and `ebsim replay` print.

    A missed evidence criterion gives insufficient_evidence whatever the others say; otherwise any missed one rejects.
    Raises `CriteriaError` naming the JSON path of a key that is missing or not a finite number.
    """
    evidence = (_held_out_steps(report, criteria), _held_out_windows(report, criteria), _fit_windows(report, criteria))
    merits = (
        _imbalance(report, criteria),
        _layer_time(report, criteria),
        _time_gain(report, criteria),
        _cross_node(report, criteria),
        _kv_cache(report, criteria),
        _expert_memory(report, criteria),
        _migration(report, criteria),
        _fit_gap(report, criteria),
        *stress_findings(report, criteria),
    )
    status = ACCEPTED if all(finding.ok for finding in merits) else REJECTED
    if not all(finding.ok for finding in evidence):
        status = INSUFFICIENT_EVIDENCE
    return Verdict(status=status, findings=(*evidence, *merits))


def _held_out_steps(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    steps = number(report, "split.held_out_steps")
    if value(report, "cost.expected_values"):
        return _not_judged("held_out_steps_min", criteria, "counts know no steps, their windows are what is judged")
    return _at_least("held_out_steps_min", criteria, steps)


def _held_out_windows(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    return _at_least("held_out_windows_min", criteria, number(report, "split.held_out_windows"))


def _fit_windows(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    if value(report, "split.fit_windows") is None:
        return _not_judged("fit_windows_min", criteria, _NOT_FITTED)
    return _at_least("fit_windows_min", criteria, number(report, "split.fit_windows"))


def _imbalance(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    name = "p99_imbalance_drop_min"
    before, after = (number(report, f"{side}.rank_imbalance.p99") for side in ("baseline", "plan"))
    note = f"P99 rank imbalance {before:.3f} → {after:.3f}"
    if before <= 1:
        return _finding(name, criteria, None, after <= 1 and criteria.p99_imbalance_drop_min <= 0, f"{note}: no excess")
    return _at_least(name, criteria, (before - after) / (before - 1), note)


def _layer_time(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    name = "p99_layer_time_growth_max"
    if value(report, "model.assumed"):
        return _not_judged(name, criteria, "the model's widths are not known (say --model)")
    before, after = (number(report, f"{side}.layer_us.p99") for side in ("baseline", "plan"))
    note = f"P99 layer time {before:.1f} → {after:.1f} µs"
    if before <= 0:
        return _finding(name, criteria, None, after <= 0, note)
    return _at_most(name, criteria, after / before - 1, note)


def _time_gain(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    """Only on demand: reports made before the band was part of them can be judged without."""
    name = "time_gain_over_band_min"
    if criteria.time_gain_over_band_min == 0:
        return _not_judged(name, criteria, "not demanded")
    if value(report, "model.assumed"):
        return _not_judged(name, criteria, "the model's widths are not known (say --model)")
    before, after = (number(report, f"{side}.step_us.p50") for side in ("baseline", "plan"))
    band = number(report, "cost.band_p90")
    gain = 1 - after / before if before > 0 else 0.0
    note = f"median MoE step {before:.0f} → {after:.0f} µs, band ±{100 * band:.0f} %"
    if band <= 0:
        return _finding(name, criteria, None, gain > 0, f"{note}: the band of a table is not known")
    return _at_least(name, criteria, gain / band, note)


def _cross_node(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    before, after = (number(report, f"{side}.cross_node_bytes_per_token") for side in ("baseline", "plan"))
    budget = before * (1 + criteria.cross_node_bytes_growth_max) + criteria.cross_node_bytes_per_token_slack
    growth = after / before - 1 if before > 0 else None
    note = f"{before:.0f} → {after:.0f} bytes per token, budget {budget:.0f}"
    return _finding("cross_node_bytes_growth_max", criteria, growth, after <= budget + _ROUNDING, note)


def _kv_cache(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    if value(report, "memory.kv_cache_loss_frac") is None:
        return _not_judged("kv_cache_loss_max", criteria, "the size of the KV cache is unknown")
    return _at_most("kv_cache_loss_max", criteria, number(report, "memory.kv_cache_loss_frac"))


def _expert_memory(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    """Reports made before the figure was part of them can be judged without."""
    name = "expert_memory_frac_max"
    if value(report, "memory").get("expert_memory_frac") is None:
        return _not_judged(name, criteria, "what the experts take of the memory is unknown")
    return _at_most(name, criteria, number(report, "memory.expert_memory_frac"))


def _migration(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    if value(report, "migration.seconds") is None:
        return _not_judged("migration_seconds_max", criteria, "no plan is in force")
    return _at_most("migration_seconds_max", criteria, number(report, "migration.seconds"))


def _fit_gap(report: Mapping[str, Any], criteria: Criteria) -> Finding:
    """Compares what the plan takes off the baseline's excess on either side: sparser traffic alone is no gap.

    The fit side's promise is what is expected of windows that were not planned on, where the report knows it.
    """
    name = "fit_gap_max"
    if value(report, "fit") is None:
        return _not_judged(name, criteria, _NOT_FITTED)
    if number(report, "split.held_out_windows") == 0:
        return _not_judged(name, criteria, "nothing is held out")
    if value(report, "fit.baseline.policy") != value(report, "baseline.policy"):
        return _not_judged(name, criteria, "the plan was fitted against another baseline")
    figure = "expected_imbalance" if "expected_imbalance" in value(report, "fit") else "rank_imbalance"
    promised = _removed_share(report, f"fit.baseline.{figure}.mean", f"fit.{figure}.mean")
    if promised <= 0:
        return _not_judged(name, criteria, "the plan promises nothing off the baseline's excess")
    kept = _removed_share(report, "baseline.rank_imbalance.mean", "plan.rank_imbalance.mean")
    note = (
        f"excess of the baseline's mean imbalance removed: {100 * promised:.0f} % promised, {100 * kept:.0f} % held out"
    )
    return _at_most(name, criteria, 1 - kept / promised, note)


def _removed_share(report: Mapping[str, Any], before: str, after: str) -> float:
    """Share of the mean excess imbalance over 1 that goes; 0 when there is none."""
    old, new = (number(report, path) for path in (before, after))
    for path, ratio in ((before, old), (after, new)):
        if ratio < 1:
            raise CriteriaError(f"is {ratio}, an imbalance is 1 or more", where=f"report {path}")
    return (old - new) / (old - 1) if old > 1 else 0.0


def _at_least(name: str, criteria: Criteria, observed: float, note: str = "") -> Finding:
    return _finding(name, criteria, observed, observed >= getattr(criteria, name) - _ROUNDING, note)


def _at_most(name: str, criteria: Criteria, observed: float, note: str = "") -> Finding:
    return _finding(name, criteria, observed, observed <= getattr(criteria, name) + _ROUNDING, note)


def _not_judged(name: str, criteria: Criteria, why: str) -> Finding:
    return _finding(name, criteria, None, True, f"{NOT_JUDGED}{why}")


def _finding(name: str, criteria: Criteria, observed: float | None, ok: bool, note: str) -> Finding:
    return Finding(criterion=name, limit=getattr(criteria, name), observed=observed, ok=ok, note=note)


_NOT_FITTED = "the plan was not fitted in this run"
