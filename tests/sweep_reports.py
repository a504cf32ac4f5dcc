"""A report of a sweep made by hand, and what scripts rely on in one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

POINT = {
    "slots_per_rank", "extra_slots_per_rank", "policy", "rank_imbalance", "rank_imbalance_by_layer", "layer_us",
    "step_us", "cross_node_bytes_per_token", "active_experts_per_rank", "lower_bound_per_window", "slots",
    "redundant_slots", "memory_bytes_per_rank", "fit", "kv_tokens_lost", "kv_tokens_left", "gain", "slower",
}  # fmt: skip
PER_LAYER = {
    "slots_per_rank", "rank_imbalance", "rank_imbalance_by_layer", "layer_us", "step_us", "lower_bound_per_window",
    "memory_bytes_per_rank", "kv_tokens_lost", "kv_tokens_left", "gain",
}  # fmt: skip
CURVE = {
    "ranks", "nodes", "window_steps", "windows", "fit_windows", "fit_steps", "held_out_windows", "held_out_steps",
    "held_out_tokens", "points", "knee",
}  # fmt: skip
REPORT = {
    "trace", "split", "model", "profile", "dispatch", "cost", "gain_by", "knee_rule", "curves", "notes", "timing_s",
}  # fmt: skip


def require_documented_sweep(report: dict[str, Any]) -> None:
    """Every documented key and no other is there, and every number is finite."""
    assert set(report) - {"per_layer_note"} == REPORT
    for curve in report["curves"]:
        assert set(curve) == CURVE
        for point in curve["points"]:
            assert set(point) - {"per_layer"} == POINT
            assert "per_layer" not in point or set(point["per_layer"]) == PER_LAYER
    assert all(math.isfinite(value) for value in _values(report) if isinstance(value, int | float))


def example_report(*, tokens: bool = True) -> dict[str, Any]:
    """8 and 16 ranks; the first curve has its knee at one more slot, the second none by seconds."""
    return {
        "trace": {"kind": "tokens", "layers": 2, "experts": 32},
        "split": {"by": "request", "held_out": 0.5, "seed": 0},
        "model": {"name": "example", "kv_bytes_per_token": 1000 if tokens else None},
        "profile": "h100",
        "dispatch": "even",
        "cost": {"label": "h100 · example · band ±20 %"},
        "gain_by": "seconds",
        "curves": [
            _curve(8, 16, [(4, 1.5, 1000.0), (5, 1.25, 900.0), (6, 1.2, 890.0)], (1, 1), tokens),
            _curve(16, 1, [(2, 1.8, 800.0), (3, 1.4, 808.0)], (None, 1), tokens),
        ],
        "per_layer_note": "slots by layer are a what-if",
    }


def _curve(
    ranks: int, steps: int, figures: list[tuple[int, float, float]], knees: tuple[int | None, int | None], tokens: bool
) -> dict[str, Any]:
    points = [_point(slots, figures[0][0], ranks, p99, us, tokens) for slots, p99, us in figures]
    for point in points[1:]:
        slots = point["slots_per_rank"]
        shared = {name: point[name] for name in PER_LAYER & set(point)}
        point["per_layer"] = {**shared, "slots_per_rank": {"3": slots - 1, "5": slots + 1}}
        point["per_layer"]["rank_imbalance"] = {"mean": 1.1, "p99": 1.22}
    found = {
        by: None
        if index is None
        else {"point": index, "slots_per_rank": figures[index][0], "extra_slots_per_rank": index}
        for by, index in zip(("seconds", "imbalance"), knees, strict=True)
    }
    return {
        "ranks": ranks, "nodes": ranks // 8, "window_steps": steps,
        "windows": f"windows of {steps} step{'s' * (steps > 1)}", "fit_windows": 90, "held_out_windows": 90,
        "held_out_tokens": 12345, "points": points, "knee": found,
    }  # fmt: skip


def _point(slots: int, fewest: int, ranks: int, p99: float, us: float, tokens: bool) -> dict[str, Any]:
    lost = (slots - fewest) * 4_000
    return {
        "slots_per_rank": slots,
        "extra_slots_per_rank": slots - fewest,
        "policy": "window_search" if slots > fewest else "eplb",
        "rank_imbalance": {"mean": round(1 + (p99 - 1) / 2, 3), "p99": p99},
        "layer_us": {"p50": us / 2 - 10, "p99": us / 2},
        "step_us": {"p50": us - 20, "p99": us},
        "slots": slots * ranks,
        "redundant_slots": slots * ranks - 32,
        "memory_bytes_per_rank": slots * 4_000_000,
        "kv_tokens_lost": lost if tokens else None,
        "kv_tokens_left": 100_000 - lost if tokens else None,
        "slower": slots == 3,
        "gain": {
            name: {"saved": 0.1, "noise": 0.01, "counts": slots > fewest} for name in ("imbalance_p99", "step_us_p99")
        },
    }


def _values(content: Any) -> Iterator[Any]:
    if isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from _values(inner)
    else:
        yield content
