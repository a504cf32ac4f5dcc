"""Placements of the recorded small model that cost no quality, by (placement, slots per rank, made from, replicas)."""

from __future__ import annotations

from easybalance_sim.cluster.topology import uniform
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.quality.lossless import chance_alone, replanned
from easybalance_sim.simulate.replica_choice.choose import choose
from easybalance_sim.simulate.steps.balance import Balance, balance
from easybalance_sim.simulate.steps.placements import contiguous, planned
from easybalance_sim.simulate.steps.recorded import RecordedSteps, rank_loads

Key = tuple[str, int, str, str]
RANKS, SLOTS = 8, (8, 10)
REPLANNED = ((40, 40), (120, 120), (120, 240))
RULES = ("least-loaded", "optimum")


def alternatives(past: RecordedSteps, now: RecordedSteps, seed: int) -> dict[Key, Balance]:
    """Made from the past or in hindsight, with and without a second replica, as they are and made anew."""
    counts = now.counts
    rows: dict[Key, Balance] = {
        ("uniform", 8, "hindsight", "even"): balance(chance_alone(now, RANKS, seed)),
        ("contiguous", 8, "past", "even"): balance(rank_loads(counts, contiguous(now.layers, 64, RANKS))),
    }
    for slots in SLOTS:
        for policy in ("eplb", "window_search"):
            for fitted, steps in (("past", past), ("hindsight", now)):
                plan = planned(policy, steps, RANKS, slots, seed)
                rows[policy, slots, fitted, "even"] = balance(rank_loads(counts, plan))
                rows |= {(policy, slots, fitted, rule): _chosen(now, plan, rule) for rule in RULES if slots > 8}
        for every, last in REPLANNED:
            loads = replanned(past, now, uniform(RANKS, RANKS, slots), every, last, seed=seed)
            rows["eplb", slots, f"last {last} steps, each {every}", "even"] = balance(loads)
    return rows


def _chosen(now: RecordedSteps, plan: Plan, rule: str) -> Balance:
    return balance(choose(now.counts, plan, rule).loads)
