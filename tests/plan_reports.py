"""Reports of `ebsim plan` and `ebsim replay` of any size, made without a run; tests change single values."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.gate.criteria import load_criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.replay.outcome import MATRIX_RANKS
from tests.gate_reports import one_case

SCENARIOS = ("mix-change", "burst", "uniform", "node-loss", "heterogeneous")


def plan_report(
    layers: int = 3, experts: int = 8, ranks: int = 4, nodes: int = 2, windows: int = 20, **changes: Any
) -> dict[str, Any]:
    """An accepted plan with one redundant slot per rank; `changes` replace values at paths whose dots are written as
    double underscores, before the gate judges."""
    slots = ranks * (-(-experts // ranks) + 1)
    report: dict[str, Any] = {
        "trace": {
            "kind": "tokens", "model": "toy", "files": ["toy.parquet"], "fingerprint": "ab" * 32, "tokens": 9000,
            "steps": 640, "layers": layers, "experts": experts, "top_k": 2,
        },
        "split": {
            "by": "request", "held_out": 0.5, "seed": 0, "window_steps": 16, "window_seconds": 0.0, "phase": None,
            "workloads": [], "fit_steps": 320, "fit_windows": windows, "fit_tokens": 4500, "held_out_steps": 320,
            "held_out_windows": windows, "held_out_tokens": 4500,
        },
        "cluster": {
            "ranks": ranks, "nodes": nodes, "slots_per_rank": slots // ranks, "slots": slots, "profile": "h200"
        },
        "model": {"name": "toy", "expert_bytes": 1_000_000, "assumed": False},
        "dispatch": "even",
        "cost": {
            "label": "h200 · bf16 · band ±20 %", "calibrated": True, "all_to_all": "normal", "phase": "prefill",
            "overlap": "none", "communication": "links by the busiest direction", "band_p90": 0.2,
            "expected_values": False,
        },
        "baseline": _side("contiguous", 1.5, 100.0, layers, ranks, nodes, experts, experts),
        "plan": _side("window_search", 1.2, 90.0, layers, ranks, nodes, slots, experts),
        "floor": _side("eplb", 1.1, 85.0, layers, ranks, nodes, slots, experts),
        "gain": {"share_of_possible": 0.6, "share_of_floor": 0.75},
        "maps": _maps(layers, experts, ranks, slots, windows),
        "memory": {
            "kv_cache_loss_frac": 0.01, "kv_tokens_lost": 1200, "bytes_per_redundant_slot": 3_000_000,
            "staging_bytes": 2_000_000, "expert_memory_frac": 0.2, "activation_bytes": 400_000, "warnings": [],
            "dispatch_buffer": {"sent_per_rank": 64, "tokens_per_rank": 80, "tokens_per_expert": 30, "bytes": 9000},
        },
        "migration": {"moves": 12, "cross_node_moves": 4, "bytes": 12_000_000, "seconds": 0.004},
        "candidates": [
            _candidate("contiguous", experts, 100.0, 1.9, 900.0, 0, ["cross_node_bytes", "migration_bytes"]),
            _candidate("eplb", slots, 95.0, 1.6, 1000.0, 14, []),
            _candidate("window_search", slots, 90.0, 1.4, 950.0, 12, ["cross_node_bytes", "migration_bytes"]),
        ],
        "plan_file": "plan.json",
        "fingerprint": "cd" * 32,
        "notes": ["first run: compiling kernels, some 10 seconds, once", "a note"],
    }  # fmt: skip
    report["fit"] = {
        **copy.deepcopy(report["plan"]),
        "expected_imbalance": {"mean": 1.21, "p99": 1.5},
        "baseline": {
            "policy": "contiguous", "rank_imbalance": report["baseline"]["rank_imbalance"],
            "expected_imbalance": {"mean": 1.5, "p99": 2.0},
        },
        "cross_validation": {
            kind: {"removed_excess": {"mean": share, "p99": share}}
            for kind, share in (("interleaved", 0.6), ("blocked", 0.3))
        },
    }  # fmt: skip
    return judged(changed(report, **changes))


def changed(report: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The same report with other values at paths whose dots are written as double underscores."""
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = report
        for name in parents:
            target = target[name]
        target[last] = value
    return report


def judged(report: dict[str, Any]) -> dict[str, Any]:
    """With the verdict of the default criteria."""
    return {**report, "verdict": judge(report, load_criteria(None)).to_dict()}


def stressed(report: dict[str, Any], step: float = 1.0) -> dict[str, Any]:
    """With one case of every scenario, in which the plan's P99 step is `step` times the baseline's."""
    stress = {
        name: {"what": "", "not_judged": None, "left_out": [], "cases": [one_case(name, step_p99=step)]}
        for name in SCENARIOS
    }  # fmt: skip
    return judged({**report, "stress": stress})


def counted(report: dict[str, Any]) -> dict[str, Any]:
    """As of a count trace."""
    return judged(changed(report, trace__kind="counts", cost__expected_values=True, split__by="time"))


def even(report: dict[str, Any]) -> dict[str, Any]:
    """In perfect balance with every plan."""
    for side in ("baseline", "plan", "floor"):
        report[side]["rank_imbalance"] = dict.fromkeys(("mean", "p50", "p95", "p99", "max"), 1.0)
        ones = [1.0] * len(report[side]["rank_imbalance_by_layer"]["mean"])
        report[side]["rank_imbalance_by_layer"] = {"mean": ones, "p99": ones}
        report[side]["lower_bound_per_window"] = {"mean": 1.0, "p99": 1.0}
    return judged(changed(report, gain={"share_of_possible": None, "share_of_floor": None}))


def swapped(report: dict[str, Any]) -> dict[str, Any]:
    """With a plan that is as bad as the baseline was, and the other way round."""
    before, after = copy.deepcopy(report["baseline"]), copy.deepcopy(report["plan"])
    names = ("rank_imbalance", "rank_imbalance_by_layer", "layer_us", "step_us", "layer_us_bracket", "step_us_bracket")
    for name in (*names, "traffic", "cross_node_bytes_per_token"):
        report["baseline"][name], report["plan"][name] = after[name], before[name]
    times = report["maps"]["over_time"]
    times["baseline"], times["plan"] = times["plan"], times["baseline"]
    return judged(changed(report, gain={"share_of_possible": -1.5, "share_of_floor": -3.0}))


def _side(
    policy: str, mean: float, us: float, layers: int, ranks: int, nodes: int, slots: int, experts: int
) -> dict[str, Any]:
    times = {"p50": us, "p95": us * 1.1, "p99": us * 1.2}
    steps = {name: value * layers for name, value in times.items()}
    pairs = {"node": nodes, "rank": ranks}
    by_layer = [round(mean + 0.01 * layer, 6) for layer in range(layers)]
    return {
        "policy": policy,
        "rank_imbalance": {"mean": mean, "p50": mean, "p95": mean + 0.2, "p99": mean + 0.4, "max": mean + 0.8},
        "rank_imbalance_by_layer": {"mean": by_layer, "p99": [one + 0.4 for one in by_layer]},
        "layer_us": times,
        "step_us": steps,
        "layer_us_bracket": {"full_overlap": {name: 0.7 * one for name, one in times.items()}, "serial": times},
        "step_us_bracket": {"full_overlap": {name: 0.7 * one for name, one in steps.items()}, "serial": steps},
        "time_share": {"dispatch": 0.2, "expert": 0.6, "combine": 0.2},
        "cross_node_bytes_per_token": 10 * us if nodes > 1 else 0.0,
        "traffic": {
            f"{kind}_bytes_per_token": _pairs(count, us).tolist()
            for kind, count in pairs.items()
            if count <= MATRIX_RANKS
        },
        "active_experts_per_rank": {"mean": 2.0, "p99": 3.0},
        "lower_bound_imbalance": 1.0,
        "lower_bound_per_window": {"mean": 1.02, "p99": 1.1},
        "slots": slots,
        "redundant_slots": slots - experts,
        "memory_bytes_per_rank": slots // ranks * layers * 1_000_000,
    }  # fmt: skip


def _pairs(count: int, us: float) -> FloatArray:
    place = np.arange(count)
    pairs: FloatArray = us + place[:, None] + 2.0 * place[None, :]
    return pairs


def _maps(layers: int, experts: int, ranks: int, slots: int, windows: int) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    tokens = rng.integers(50, 1500, (layers, experts))
    replicas = np.ones((layers, experts), np.int64)
    for row, most in enumerate(np.argsort(-tokens, axis=1, kind="stable")):
        for place in range(slots - experts):
            replicas[row, most[place % experts]] += 1
    loads = [rng.integers(low, 1300, (layers, ranks)) for low in (700, 1100)]
    means = [np.round(high - 0.1 * rng.random(windows), 6).tolist() for high in (1.6, 1.25)]
    return {
        "layers": list(range(3, 3 + layers)),
        "rank_speed": [1.0] * ranks,
        "expert_tokens": tokens.tolist(),
        "replicas": replicas.tolist(),
        "baseline": {"rank_tokens": loads[0].tolist()},
        "plan": {"rank_tokens": loads[1].tolist()},
        "over_time": {
            "windows": windows,
            "windows_per_point": 1,
            "window": list(range(windows)),
            "step_tokens": [*(100.0 for _ in range(windows - 1)), 350.0],
            "baseline": {"mean": means[0], "worst": [one + 0.5 for one in means[0]]},
            "plan": {"mean": means[1], "worst": [one + 0.5 for one in means[1]]},
            "leading": ["code"] * (windows // 2) + ["chat"] * (windows - windows // 2),
        },
    }


def _candidate(
    policy: str, slots: int, objective: float, worst: float, node_bytes: float, moves: int, pareto: list[str]
) -> dict[str, Any]:
    return {
        "policy": policy, "slots": slots, "objective_us": objective, "fit_imbalance_mean": worst - 0.3,
        "fit_imbalance_p99": worst + 0.1, "expected_imbalance_mean": worst - 0.25, "expected_imbalance_p99": worst,
        "expected_imbalance_worst": worst, "cross_node_bytes_per_token": node_bytes, "moves": moves,
        "migration_bytes": moves * 1_000_000, "migration_s": moves * 1e-4, "pareto": pareto,
    }  # fmt: skip
