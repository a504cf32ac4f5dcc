"""A replay report that the default criteria accept; tests spoil one number at a time."""

from __future__ import annotations

import copy
from typing import Any

from easybalance_sim.gate.criteria import SCENARIOS

_SECTION: dict[str, Any] = {
    "rank_imbalance": {"mean": 1.1, "p50": 1.1, "p95": 1.2, "p99": 1.3, "max": 1.4},
    "layer_us": {"p50": 80.0, "p95": 90.0, "p99": 95.0},
    "cross_node_bytes_per_token": 10_000.0,
    "policy": "eplb",
}


def good_report(**changes: Any) -> dict[str, Any]:
    """The report; `changes` replace values at paths whose dots are written as double underscores."""
    report: dict[str, Any] = {
        "split": {"by": "request", "fit_steps": 128, "held_out_steps": 128, "fit_windows": 8, "held_out_windows": 8},
        "baseline": copy.deepcopy(_SECTION),
        "plan": copy.deepcopy(_SECTION),
        "fit": {
            "rank_imbalance": {"mean": 1.05},
            "baseline": {"policy": "contiguous", "rank_imbalance": {"mean": 1.55}},
        },
        "model": {"name": "any", "assumed": False},
        "cost": {"expected_values": False},
        "memory": {"kv_cache_loss_frac": 0.04, "expert_memory_frac": 0.5},
        "migration": {"moves": 12, "bytes": 10**9, "seconds": 2.5},
    }
    report["baseline"] |= {"policy": "contiguous"}
    report["baseline"]["rank_imbalance"] |= {"mean": 1.6, "p99": 2.0}
    report["baseline"]["layer_us"]["p99"] = 120.0
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = report
        for name in parents:
            target = target[name]
        target[last] = value
    return report


def one_case(name: str = "any", **over: float) -> dict[str, Any]:
    """A case in which the plan is 10 % faster and as even; over: of `over_baseline`."""
    side = {"rank_imbalance": {"mean": 1.2, "p99": 1.5}, "step_us": {"p99": 100.0}}
    case: dict[str, Any] = {"name": name, "baseline": copy.deepcopy(side), "plan": copy.deepcopy(side)}
    case["over_baseline"] = {
        "step_p99": 0.9, "step_p99_noise": 0.0, "imbalance_p99": 1.0, "imbalance_p99_noise": 0.0, **over,
    }  # fmt: skip
    case["baseline"] |= {"experts_lost": 8, "experts_lost_frac": 0.25}
    case["plan"] |= {"experts_lost": 4, "experts_lost_frac": 0.125}
    return case


def stressed_report(**cases: list[dict[str, Any]]) -> dict[str, Any]:
    """A good report; cases: of a scenario, dashes written as underscores."""
    report = good_report()
    report["stress"] = {name: {"what": "", "not_judged": None, "cases": [one_case()]} for name in SCENARIOS}
    for name, found in cases.items():
        report["stress"][name.replace("_", "-")]["cases"] = found
    return report
