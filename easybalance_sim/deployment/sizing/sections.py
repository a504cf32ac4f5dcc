"""Parts of the JSON object of `ebsim capacity`."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from easybalance_sim.deployment.prepare import AFTER, BEFORE, Prepared
from easybalance_sim.deployment.sizing.attainment import Attainment
from easybalance_sim.deployment.sizing.highest_rate import HighestRate
from easybalance_sim.deployment.sizing.request import CapacityRequest
from easybalance_sim.deployment.sizing.search import Fleets, Row

WORTH = 0.01
"""A replica that adds less to the rate is not worth its memory."""


def head(request: CapacityRequest, prepared: Prepared, seeds: Sequence[int]) -> dict[str, Any]:
    """What was asked of what."""
    scenario = prepared.scenario
    return {
        "scenario": {"file": str(request.scenario.scenario), "title": scenario.title, "why": scenario.why},
        "slo": {
            "ttft_ms": scenario.slo.ttft_s * 1e3,
            "tpot_ms": scenario.slo.tpot_s * 1e3,
            "share": scenario.slo.share,
        },
        "seeds": list(seeds),
        "tolerance": request.tolerance,
        "duration_s": scenario.run.duration_s,
        "overlap": scenario.run.overlap,
        "gpus": sum(pool.gpus for pool in scenario.pools),
        "plans": {key: [one.plan.policy for one in prepared.stations(key)] for key in (BEFORE, AFTER)},
        "cost": list(dict.fromkeys(one.label for one in prepared.after)),
    }


def rate(found: HighestRate) -> dict[str, Any]:
    """One search."""
    return {
        "rate_per_s": found.rate_per_s,
        "ends_by": found.ends_by or None,
        "runs": found.runs,
        "at": None if found.holds is None else at(found.holds),
        "beyond": None if found.fails is None else at(found.fails),
        "tried": [{"rate_per_s": one.rate_per_s, "inside_slo": one.inside} for one in found.tried],
    }


def at(found: Attainment) -> dict[str, Any]:
    """One rate."""
    return {
        "rate_per_s": found.rate_per_s,
        "inside_slo": found.inside,
        "inside_slo_of_seeds": [found.inside_least, found.inside_most],
        "queue_growth": found.growth,
        "tpot_rise": found.rise,
        "late_first_token": found.late_first,
        "slow_tokens": found.slow,
        "refused": found.refused,
        "requests": found.requests,
        "goodput_per_s": found.goodput_per_s,
        "output_tokens_per_s": found.output_tokens_per_s,
        "kv_in_use": found.kv_in_use,
        "ttft_p99_ms": _finite(1e3 * found.ttft_p99_s),
        "tpot_p99_ms": _finite(1e3 * found.tpot_p99_s),
    }


def fleets(found: Fleets, share: float) -> dict[str, Any]:
    """The fewest GPUs of one pool."""
    tried = [
        {"gpus": gpus, "refused": one}
        if isinstance(one, str)
        else {
            "gpus": gpus,
            "refused": None,
            **{key: {"holds": one[key].holds(share), "ends_by": one[key].fails_by(share) or None} for key in one},
        }
        for gpus, one in found.tried.items()
    ]
    least = {
        key: {"gpus": gpus or None, "at": at(_tried(found, gpus, key)) if gpus else None}
        for key, gpus in found.gpus.items()
    }
    return {"role": found.role, "rate_per_s": found.rate_per_s, **least, "tried": tried}


def _tried(found: Fleets, gpus: int, key: str) -> Attainment:
    one = found.tried[gpus]
    if isinstance(one, str):
        raise RuntimeError(f"{gpus} GPUs hold what they cannot be: {one}")
    return one[key]


def layout(row: Row) -> dict[str, Any]:
    """One layout's rates."""
    made = row.before is not None and row.after is not None
    found: dict[str, Any] = {
        "experts": row.layout.experts_name,
        "attention": row.layout.attention_name,
        "gpus": row.layout.gpus,
        "expert_ranks": row.layout.ranks,
        "expert_tensor": row.layout.expert_tensor,
        "data_ranks": row.layout.data_ranks,
        "spare_slots": row.layout.spare,
        "refused": None if made else row.refused,
        "kv_tokens": row.kv_tokens,
        "replicas": row.replicas,
    }
    for key, policy, one in zip((BEFORE, AFTER), row.policies, (row.before, row.after), strict=True):
        found[key] = None if one is None else {"policy": policy, **rate(one)}
    return found


def enough(rows: Sequence[dict[str, Any]], worth: float) -> int | None:
    """The fewest spare slots whose rate with the plan after is as good as the best but for `worth`; None when no layout
    holds any."""
    able = [row for row in rows if row["refused"] is None and row[AFTER]["rate_per_s"]]
    most = max((row[AFTER]["rate_per_s"] for row in able), default=0.0)
    return next((row["spare_slots"] for row in able if row[AFTER]["rate_per_s"] >= (1 - worth) * most), None)


def best(rows: Sequence[dict[str, Any]], key: str, worth: float) -> list[dict[str, str]]:
    """Layouts whose rate under one plan is as good as the best but for `worth`, empty when none holds any."""
    able = [row for row in rows if row["refused"] is None and row[key]["rate_per_s"]]
    most = max((row[key]["rate_per_s"] for row in able), default=0.0)
    return [
        {"experts": row["experts"], "attention": row["attention"]}
        for row in able
        if row[key]["rate_per_s"] >= (1 - worth) * most
    ]


def gain(before: float, after: float, tolerance: float) -> dict[str, Any]:
    """after over before, None over 0; and whether two rates, each found to that tolerance, differ by more than it."""
    ratio = after / before if before else None
    alike = ratio is not None and 1 / (1 + tolerance) <= ratio <= 1 + tolerance
    return {"gain": ratio, "told_apart": not alike and before != after}


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
