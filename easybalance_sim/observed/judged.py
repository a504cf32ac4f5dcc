"""Whether tokens, or predicted seconds, are good enough to plan by, against measured rank times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from easybalance_sim.errors import UsageError
from easybalance_sim.observed.agreement import Agreement, agreement
from easybalance_sim.observed.tables import Observed

GOOD, RECALIBRATE, TOO_FEW = "good", "recalibrate", "too few observations"
EXIT_CODES = {GOOD: 0, RECALIBRATE: 1, TOO_FEW: 3}
LIMITS = {
    "observations_min": 32,
    "within_min": 0.8,
    "busiest_time_min": 0.95,
    "error_max": 0.25,
    "bias_max": 0.2,
    "even_below": 1.05,
    "routing_error_max": 0.05,
}
"""within: correlation inside a step and layer · busiest_time: of the predicted busiest rank over the slowest · error:
mean absolute, over the mean time · bias: of seconds, either way, as wide as the bands of the shipped profiles · even:
ranks whose measured and predicted times are below this max/mean differ by noise, whose correlation says nothing ·
routing_error: measured tokens that are off by more are those of another plan or another trace."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """What `compare` found. status: `GOOD`, `RECALIBRATE` or `TOO_FEW` · report: the documented JSON object."""

    status: str
    report: dict[str, Any]

    @property
    def exit_code(self) -> int:
        """0 good, 1 recalibrate, 3 too few observations."""
        return EXIT_CODES[self.status]


def compare(predicted: pd.DataFrame, observed: Observed) -> Compared:
    """Both at the grain of the times: keys, `tokens` and maybe `us` (predicted); keys and `us` (measured).

    Raises `UsageError` when not one measured row was predicted.
    """
    joined = _joined(predicted, observed)
    counts = {
        "grain": list(observed.keys),
        "rows": len(observed.frame),
        "not_predicted": len(observed.frame) - len(joined),
    }
    joined = joined[joined.groupby("group")["us"].transform("size") > 1]
    counts |= {"observations": len(joined), "groups": int(joined["group"].nunique())}
    if _too_few(joined):
        answer = f"{len(joined)} observations of ranks that can be compared, {LIMITS['observations_min']} are needed"
        return _found(TOO_FEW, answer, counts, {}, {}, None)
    models = {name: _model(joined, name) for name in ("tokens", "seconds") if name in joined.columns}
    findings = {name: _findings(name, one) for name, one in models.items()}
    routing = _routing_error(joined)
    status, answer = _verdict(findings, routing)
    return _found(status, answer, counts, models, findings, routing)


def _found(
    status: str,
    answer: str,
    counts: dict[str, Any],
    models: dict[str, Agreement],
    findings: dict[str, list[dict[str, Any]]],
    routing: float | None,
) -> Compared:
    report = {
        "status": status,
        "answer": answer,
        **counts,
        "models": {name: {**one.to_dict(), "findings": findings[name]} for name, one in models.items()},
        "routing_error": routing,
        "limits": dict(LIMITS),
    }
    return Compared(status=status, report=report)


def _joined(predicted: pd.DataFrame, observed: Observed) -> pd.DataFrame:
    renamed = predicted.rename(columns={"us": "seconds"})
    measured = observed.frame.rename(columns={"tokens": "measured_tokens"})
    joined = measured.merge(renamed, on=list(observed.keys), how="inner")
    if joined.empty:
        raise UsageError(
            f"no {', '.join(observed.keys)} of the times is among those predicted",
            where="OBSERVED",
            fix="number steps, layers (absolute ids) and ranks as in the trace",
        )
    together = [key for key in observed.keys if key != "rank"]
    return joined.assign(group=joined.groupby(together).ngroup() if together else 0)


def _too_few(joined: pd.DataFrame) -> bool:
    return len(joined) < LIMITS["observations_min"] or not (joined["us"].any() and joined["tokens"].any())


def _model(joined: pd.DataFrame, name: str) -> Agreement:
    predicted, us = (joined[column].to_numpy(np.float64) for column in (name, "us"))
    return agreement(predicted, us, joined["group"].to_numpy(np.int64), scaled=name == "tokens")


def _findings(name: str, found: Agreement) -> list[dict[str, Any]]:
    """One for each limit that counts: criterion, limit, observed, ok."""
    even = max(found.imbalance, found.measured_imbalance) <= LIMITS["even_below"]
    rows: list[tuple[str, float | None, bool]] = [
        ("busiest_time_min", found.busiest_time, found.busiest_time >= LIMITS["busiest_time_min"]),
        ("error_max", found.error, found.error <= LIMITS["error_max"]),
    ]
    if not even:
        rows.insert(0, ("within_min", found.within, (found.within or 0.0) >= LIMITS["within_min"]))
    if name == "seconds":
        rows.append(("bias_max", abs(found.bias), abs(found.bias) <= LIMITS["bias_max"]))
    return [
        {"criterion": criterion, "limit": LIMITS[criterion], "observed": _rounded(value), "ok": ok}
        for criterion, value, ok in rows
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 6)


def _routing_error(joined: pd.DataFrame) -> float | None:
    """Mean absolute difference of measured and predicted tokens, over the mean; None where none were measured."""
    if "measured_tokens" not in joined.columns:
        return None
    return _rounded((joined["measured_tokens"] - joined["tokens"]).abs().mean() / joined["tokens"].mean())


def _verdict(findings: dict[str, list[dict[str, Any]]], routing: float | None) -> tuple[str, str]:
    """Status and the answer in words: the cost model that plans are made by decides, which is seconds if priced."""
    fails = {name: [one["criterion"] for one in rows if not one["ok"]] for name, rows in findings.items()}
    counts = f"token count is {'not ' if fails['tokens'] else ''}a good enough cost model" + _why(fails["tokens"])
    if routing is not None and routing > LIMITS["routing_error_max"]:
        return (
            RECALIBRATE,
            f"the measured tokens are not the predicted ones: another plan or trace was measured; {counts}",
        )
    if "seconds" not in fails:
        advice = "; compare the plan file with --trace to see whether predicted seconds are" if fails["tokens"] else ""
        return RECALIBRATE if fails["tokens"] else GOOD, counts + advice
    if fails["seconds"]:
        return RECALIBRATE, f"{counts}; predicted seconds are not{_why(fails['seconds'])}: fit a profile to this GPU"
    return GOOD, f"{counts}; predicted seconds are"


def _why(fails: list[str]) -> str:
    return f" ({', '.join(fails)})" if fails else ""
