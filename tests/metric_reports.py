"""A report with made-up figures, as `ebsim replay --format json` prints it, as far as the gauges read it."""

from __future__ import annotations

from typing import Any

LAYERS = (3, 5)


def report(phase: str = "decode", fingerprint: str = "ab12") -> dict[str, Any]:
    """Two layers, a plan that is better than its baseline; nothing is known of the KV cache."""
    return {
        "trace": {"fingerprint": "cd34"},
        "split": {"held_out_tokens": 1000},
        "cluster": {"ranks": 8, "nodes": 2, "profile": "h200"},
        "model": {"name": 'odd "name"'},
        "dispatch": "even",
        "cost": {"phase": phase},
        "baseline": _side("contiguous", 2.0, 0),
        "plan": _side("eplb", 1.25, 8),
        "gain": {"share_of_possible": 0.75, "share_of_floor": None},
        "load": {
            "layers": list(LAYERS),
            "expert_imbalance": [3.5, 2.25],
            "expert_entropy": [0.9, 0.95],
            "baseline": _load("contiguous", 1.5, [0, 0], [None, None]),
            "plan": _load("eplb", 1.125, [4, 3], [1.0, 1.5]),
        },
        "memory": {"kv_cache_loss_frac": None},
        "migration": {"moves": 12, "cross_node_moves": 5, "bytes": 24870912, "seconds": 0.0125},
        "verdict": {
            "status": "rejected",
            "findings": [{"criterion": "fit_gap_max", "ok": False}, {"criterion": "held_out_steps_min", "ok": True}],
        },
        "fingerprint": fingerprint,
    }


def _side(policy: str, imbalance: float, redundant: int) -> dict[str, Any]:
    return {
        "policy": policy,
        "rank_imbalance": {"mean": imbalance, "p50": imbalance, "p95": 2 * imbalance, "p99": 3 * imbalance, "max": 9.0},
        "rank_imbalance_by_layer": {"mean": [imbalance, 1.1], "p99": [3 * imbalance, 1.2]},
        "layer_us": {"p50": 12.3, "p95": 20.0, "p99": 40 * imbalance},
        "step_us": {"p50": 25.0, "p95": 40.0, "p99": 80 * imbalance},
        "time_share": {"dispatch": 0.25, "expert": 0.5, "combine": 0.25},
        "cross_node_bytes_per_token": 4096.5,
        "memory_bytes_per_rank": 1_000_000,
        "redundant_slots": redundant,
    }


def _load(policy: str, node: float, replicated: list[int], split: list[float | None]) -> dict[str, Any]:
    return {
        "policy": policy,
        "node_imbalance": [node, 1.0],
        "replica_imbalance": [2 * node, 1.5],
        "replicated_experts": replicated,
        "replica_split": split,
        "copies_per_token": {"same_node": 10.5, "cross_node": 3.25},
    }
