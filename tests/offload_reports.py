"""A report of `ebsim offload` with made-up numbers, for tables and figures."""

from __future__ import annotations

from typing import Any


def example_report() -> dict[str, Any]:
    """Two batch sizes, three curves, two sizes of the cache."""
    return {
        "answers": ["1 request at once: keep half", "8 requests at once: keep all"],
        "trace": {"files": ["a.parquet"], "layers": 2, "experts": 4, "top_k": 2},
        "model": {
            "name": "example", "experts": 8, "resident_dtype": "bf16", "resident_bytes": 2_000_000,
            "offload_dtype": "int4_g32", "offload_bytes": 562_500, "all_bytes": 16_000_000,
        },
        "seconds": "h100 · bf16",
        "host": {"name": "pcie5", "bytes_per_s": 51.2e9, "latency_us": 10.0, "expert_us": 11.0},
        "scope": "layer", "ahead": 1, "between_us": None, "within": 0.1, "gpu_gb": None, "claimed_hit_rate": 0.8,
        "batches": [_batch(1, 1.0), _batch(8, 8.0)],
        "figure": None,
        "notes": [],
    }  # fmt: skip


def _batch(batch: int, slower: float) -> dict[str, Any]:
    names = [("belady", "none", True), ("lru", "none", False), ("lru", "history", False)]
    return {
        "batch": batch,
        "past_steps": 1000,
        "judged_steps": 2000,
        "judged_tokens": 2000 * batch,
        "tokens_per_step": float(batch),
        "experts_per_layer": 2.5,
        "all_resident": {"layer_us": 50.0, "step_us": {"mean": 100.0, "p99": 120.0}},
        "curves": [_curve(*name, slower + place) for place, name in enumerate(names)],
    }


def _curve(policy: str, prefetch: str, bound: bool, slower: float) -> dict[str, Any]:
    return {
        "policy": policy,
        "prefetch": prefetch,
        "bound": bound,
        "points": [_point(0.5, slower), _point(1.0, 0.0)],
        "claimed_hit_rate_from": None,
        "within_from": {"share": 1.0, "experts": 8, "gpu_bytes": 16_000_000, "slowdown": 1.0},
    }


def _point(share: float, slower: float) -> dict[str, Any]:
    hit_rate = 1 - slower / 20
    return {
        "share": share,
        "experts": int(share * 8),
        "hit_rate": hit_rate,
        "token_hit_rate": hit_rate + slower / 100,
        "slowdown": 1 + slower,
        "added_us": {"mean": 100 * slower, "p99": 200 * slower},
        "link_bytes_per_token": 562_500 * slower,
    }
