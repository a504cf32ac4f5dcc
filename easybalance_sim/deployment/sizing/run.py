"""`capacity`: the JSON object of `ebsim capacity`, notes aside."""

from __future__ import annotations

from math import isfinite
from typing import Any

from easybalance_sim.deployment.fields import Pool
from easybalance_sim.deployment.prepare import AFTER, BEFORE, EVEN, Prepared, ground_of_scenario
from easybalance_sim.deployment.request import scenario_of
from easybalance_sim.deployment.scenario import Scenario
from easybalance_sim.deployment.sizing.attainment import FEW_REQUESTS, Attainment
from easybalance_sim.deployment.sizing.highest_rate import HighestRate
from easybalance_sim.deployment.sizing.request import CapacityRequest
from easybalance_sim.deployment.sizing.search import (
    Fleet,
    Row,
    Search,
    fewest_gpus,
    rates_over,
    replica_layouts,
    split_layouts,
)
from easybalance_sim.deployment.sizing.variants import Layout
from easybalance_sim.planning.session import Listener

WORTH = 0.01
"""A replica that adds less to the rate is not worth its memory."""


def capacity(request: CapacityRequest, tell: Listener) -> dict[str, Any]:
    """Answer what was asked. Raises `EbsimError` subclasses for a scenario that does not fit together."""
    scenario = scenario_of(request.scenario)
    ground = ground_of_scenario(scenario, tell)
    first = scenario.run.seed
    search = Search(
        seeds=tuple(range(first, first + request.seeds)), tolerance=request.tolerance, ground=ground, tell=tell
    )
    prepared = search.prepared(scenario)
    report = {
        "scenario": {"file": str(request.scenario.scenario), "title": scenario.title, "why": scenario.why},
        "slo": {
            "ttft_ms": scenario.slo.ttft_s * 1e3,
            "tpot_ms": scenario.slo.tpot_s * 1e3,
            "share": scenario.slo.share,
        },
        "seeds": list(search.seeds),
        "tolerance": request.tolerance,
        "duration_s": scenario.run.duration_s,
        "overlap": scenario.run.overlap,
        "gpus": sum(pool.gpus for pool in scenario.pools),
        "plans": {key: [one.plan.policy for one in prepared.stations(key)] for key in (BEFORE, AFTER)},
        "cost": list(dict.fromkeys(one.label for one in prepared.after)),
        "highest_rate": _highest(search, prepared, tell),
    }
    _tell_if_few(report["highest_rate"], tell)
    if request.gpus:
        rate = request.scenario.rate_per_s or prepared.workload.rate_per_s
        report["fewest_gpus"] = _fewest(search, scenario, rate, tell)
    if request.replicas:
        report["replicas"] = [_replicas(search, scenario, pool, request, tell) for pool in scenario.pools]
    if request.parallel:
        report["parallelism"] = [_splits(search, scenario, pool, tell) for pool in scenario.pools]
    return report


def _highest(search: Search, prepared: Prepared, tell: Listener) -> dict[str, Any]:
    """Of the plan before, the plan after and even ranks; and the first two at the other end of what overlap can do."""
    mine = prepared.scenario.run.overlap
    other = "none" if mine == "full" else "full"
    wanted = [(BEFORE, mine), (AFTER, mine), (EVEN, mine), (BEFORE, other), (AFTER, other)]
    advance = tell.progress("searching the highest rate", len(wanted))
    found: dict[str, Any] = {}
    for key, overlap in wanted:
        found.setdefault(overlap, {})[key] = _rate(search.rate(prepared, key, overlap))
        advance(1)
    for ends in found.values():
        ends["gain"] = _over(ends[AFTER]["rate_per_s"], ends[BEFORE]["rate_per_s"])
    return {"stated": found[mine], "bracket": {"serial": found["none"], "overlapped": found["full"]}}


def _rate(found: HighestRate) -> dict[str, Any]:
    return {
        "rate_per_s": found.rate_per_s,
        "ends_by": found.ends_by or None,
        "runs": found.runs,
        "at": None if found.holds is None else _at(found.holds),
        "beyond": None if found.fails is None else _at(found.fails),
    }


def _at(found: Attainment) -> dict[str, Any]:
    return {
        "rate_per_s": found.rate_per_s,
        "inside_slo": found.inside,
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


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _tell_if_few(rates: dict[str, Any], tell: Listener) -> None:
    counts = [rates["stated"][key]["at"]["requests"] for key in (BEFORE, AFTER) if rates["stated"][key]["at"]]
    if counts and min(counts) < FEW_REQUESTS:
        tell.note(f"{min(counts)} requests decide: give --seeds or a longer --duration for a finer answer")


def _fewest(search: Search, scenario: Scenario, rate: float, tell: Listener) -> list[dict[str, Any]]:
    advance = tell.progress("trying numbers of GPUs", 12 * len(scenario.pools))
    return [
        {"role": pool.role, "rate_per_s": rate}
        | {key: _fleet(fewest_gpus(search, scenario, pool.role, key, rate, advance)) for key in (BEFORE, AFTER)}
        for pool in scenario.pools
    ]


def _fleet(found: Fleet) -> dict[str, Any]:
    tried = [{"gpus": gpus, "holds": holds} for gpus, holds in sorted(found.tried.items())]
    return {"gpus": found.gpus or None, "at": None if found.at is None else _at(found.at), "tried": tried}


def _replicas(
    search: Search, scenario: Scenario, pool: Pool, request: CapacityRequest, tell: Listener
) -> dict[str, Any]:
    """Rates by spare slots, and the fewest whose rate is as good as the best."""
    layouts = replica_layouts(pool, scenario.shape.experts, request.replicas)
    advance = tell.progress("comparing replicas", len(layouts))
    rows = [_layout(row) for row in rates_over(search, scenario, pool.role, layouts, advance)]
    able = [row for row in rows if row["refused"] is None and row["after"]["rate_per_s"]]
    best = max((row["after"]["rate_per_s"] for row in able), default=0.0)
    enough = next((row["spare_slots"] for row in able if row["after"]["rate_per_s"] >= (1 - WORTH) * best), None)
    return {"role": pool.role, "rows": rows, "worth_buying": enough, "worth_frac": WORTH}


def _splits(search: Search, scenario: Scenario, pool: Pool, tell: Listener) -> dict[str, Any]:
    """Rates by GPUs that share an expert, and the best split."""
    shape = scenario.shape
    layouts = split_layouts(pool, shape.experts, shape.intermediate)
    advance = tell.progress("comparing expert and tensor parallelism", len(layouts))
    rows = [_layout(row) for row in rates_over(search, scenario, pool.role, layouts, advance)]
    able = [row for row in rows if row["refused"] is None]
    best = max(able, key=_best_rate, default=None)
    return {"role": pool.role, "rows": rows, "best": None if best is None else best["layout"]}


def _best_rate(row: dict[str, Any]) -> float:
    return max(float(row[key]["rate_per_s"]) for key in (BEFORE, AFTER))


def _layout(row: Row) -> dict[str, Any]:
    made = row.before is not None and row.after is not None
    found: dict[str, Any] = {
        "layout": name_of(row.layout),
        "gpus": row.layout.gpus,
        "expert_ranks": row.layout.ranks,
        "expert_tensor": row.layout.expert_tensor,
        "spare_slots": row.layout.spare,
        "refused": None if made else row.refused,
        "kv_tokens": row.kv_tokens,
    }
    for key, policy, rate in zip((BEFORE, AFTER), row.policies, (row.before, row.after), strict=True):
        found[key] = None if rate is None else {"policy": policy, **_rate(rate)}
    return found


def name_of(layout: Layout) -> str:
    """ "EP8", "TP8" or "EP4 x TP2"."""
    if layout.expert_tensor == 1:
        return f"EP{layout.ranks}"
    return f"TP{layout.expert_tensor}" if layout.ranks == 1 else f"EP{layout.ranks} x TP{layout.expert_tensor}"


def _over(one: float, other: float) -> float | None:
    return one / other if other else None
