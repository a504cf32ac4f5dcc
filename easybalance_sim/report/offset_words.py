"""What mechanisms against rank imbalance come to in words, the same on the terminal and on a page. Imports nothing
heavy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Part = Mapping[str, Any]
AXIS = "step_mean"
LEAST_US = 0.1
"""Of a layer; less is told as nothing."""
LOSSY, KEEP, FIRST = "LOSSY ONLY", "KEEP THE PLAN", "LOSSLESS FIRST"
_CHOOSES = re.compile(r".+ \+ (\S+) replica")
"""Names of rows whose replicas a rule chooses in every step."""


def in_force(report: Part) -> Part | None:
    """The placement alone, as the run has it."""
    return next((row for row in report["front"]["rows"] if row["name"] == "plan"), None)


def rule_of(report: Part, row: Part) -> Part | None:
    """What the rule of a row takes and saves, None where it was not asked for or has no seconds. Raises `KeyError` for
    a row without a rule."""
    found = _CHOOSES.fullmatch(row["name"])
    if found is None:
        raise KeyError(row["name"])
    rules = report["replicas"]["rows"] if report["replicas"] else ()
    priced = [rule for rule in rules if rule["rule"] == found[1] and rule["net_us"] is not None]
    return priced[0] if priced else None


def best_lossless(report: Part) -> Part | None:
    """The most even of what costs no quality, can be deployed, and saves more than its rule takes."""
    rows = [row for row in _lossless(report) if not _chooses(row) or _pays(rule_of(report, row))]
    return min(rows, key=_imbalance, default=None)


def _lossless(report: Part) -> list[Part]:
    return [row for row in report["front"]["rows"] if row["lossless"] and not row["floor"] and not row["remark"]]


def _chooses(row: Part) -> bool:
    return _CHOOSES.fullmatch(row["name"]) is not None


def _pays(rule: Part | None) -> bool:
    return rule is not None and rule["net_us"] >= LEAST_US


def _imbalance(row: Part) -> float:
    return float(row["balance"][AXIS])


def balance_words(row: Part) -> str:
    """`busiest / mean rank 1.231`."""
    return f"busiest / mean rank {_imbalance(row):.3f}"


def answer(report: Part) -> tuple[str, str]:
    """`LOSSY`, `KEEP` or `FIRST`, and why."""
    best, now = best_lossless(report), in_force(report)
    if best is None:
        return LOSSY, "Nothing that can be deployed leaves the router's choice alone."
    dearer = _dearer(report, best)
    if now is not None and best["name"] == now["name"]:
        return KEEP, f"Nothing lossless that pays is more even than the plan in force: {balance_words(now)}.{dearer}"
    before = "" if now is None else f", {_imbalance(now):.3f} with the plan in force"
    paid = f" after what its rule takes ({_taken(rule_of(report, best))})" if _chooses(best) else ""
    return FIRST, f"{best['name']} costs no quality{paid}: {balance_words(best)}{before}.{dearer}"


def _dearer(report: Part, best: Part) -> str:
    """What is more even than the best, and why it is not the answer."""
    rows = [row for row in _lossless(report) if _chooses(row) and _imbalance(row) < _imbalance(best)]
    if not rows:
        return ""
    row = min(rows, key=_imbalance)
    return f" {row['name']} is more even, {_imbalance(row):.3f}, but {_taken(rule_of(report, row))}."


def _taken(rule: Part | None) -> str:
    if rule is None:
        return "what choosing in every step takes is not known here"
    taken = rule["sensor_us"] + rule["budget_us"]
    return f"its sensor and its choosing take {taken:,.1f} µs of a layer and save {rule['saved_us']:,.1f} µs"
