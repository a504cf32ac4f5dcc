"""The report of a sweep: plain values with the documented keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from easybalance_sim.cost.memory import KvRoom
from easybalance_sim.planning.candidates import TIE_FRAC
from easybalance_sim.planning.evidence import trace_section
from easybalance_sim.planning.request import PlanRequest
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.sweep.curve import Curve, LayerBudget, Point, layer_budget, windows_in_words
from easybalance_sim.sweep.knee import RULE, Gain, gain, knee

FIGURES = (
    "rank_imbalance", "rank_imbalance_by_layer", "layer_us", "step_us", "cross_node_bytes_per_token",
    "active_experts_per_rank", "lower_bound_per_window", "slots", "redundant_slots", "memory_bytes_per_rank",
)  # fmt: skip
BY_LAYER_FIGURES = ("rank_imbalance", "rank_imbalance_by_layer", "layer_us", "step_us", "lower_bound_per_window")
"""Figures that can be put together from layers of several plans."""
WHAT_IF = (
    "slots by layer are a what-if: SGLang, vLLM, TensorRT-LLM and vllm-ascend take the same number of slots in every "
    "layer, so no plan is written"
)


def head_section(curve: Curve, request: PlanRequest, room: KvRoom, by_seconds: bool) -> dict[str, Any]:
    """What all curves share; split and cost as in the report of a plan."""
    session = curve.session
    shape, cost = session.shape, session.bench.cost(curve.points[0].best.plan)
    return {
        "trace": trace_section(session),
        "split": {"by": request.split, "held_out": request.held_out, "seed": request.settings.seed},
        "model": {
            "name": shape.name,
            "expert_bytes": shape.expert_bytes,
            "assumed": shape.assumed,
            "moe_layers": max(room.moe_layers, len(shape.layers)),
            "kv_bytes_per_token": None if shape.assumed else round(room.token_bytes) or None,
        },
        "profile": session.topology.profile,
        "dispatch": session.bench.rule,
        "cost": {
            "label": cost.label,
            "calibrated": cost.calibrated and not shape.assumed,
            "all_to_all": session.bench.mode,
            "phase": session.phase,
            "expected_values": curve.points[0].outcome.expected,
        },
        "gain_by": "seconds" if by_seconds else "imbalance",
        "knee_rule": RULE,
    }


def curve_section(curve: Curve, room: KvRoom, by_seconds: bool, *, per_layer: bool) -> dict[str, Any]:
    """One number of ranks and one window length: its points and where the knee is.

    by_seconds: what slots by layer save · per_layer: also slots by layer at every point.
    """
    points, held = curve.points, curve.points[0].outcome
    imbalance = [_imbalance_gain(points[0].outcome, point.outcome) for point in points]
    seconds = [_seconds_gain(points[0].outcome, point.outcome) for point in points]
    memory = [float(point.layout.most) for point in points]
    slower = [one.saved < -curve.tie_frac * _step_p99(points[0].outcome) for one in seconds]
    rows = [
        _point(curve, index, room, imbalance[index], seconds[index]) | {"slower": slower[index]}
        for index in range(len(points))
    ]
    if per_layer:
        for index in range(1, len(points)):
            budget = layer_budget(curve, index, by_seconds)
            rows[index]["per_layer"] = _per_layer(curve, budget, room)
    by_name = {"seconds": seconds, "imbalance": imbalance}
    return {
        "ranks": curve.session.topology.ranks,
        "nodes": curve.session.topology.nodes,
        "window_steps": curve.session.settings.window_steps,
        "windows": windows_in_words(curve.session),
        "fit_windows": len(curve.windows.window),
        "fit_steps": int(curve.windows.steps.sum()),
        "held_out_windows": held.windows if curve.proven else 0,
        "held_out_steps": held.steps if curve.proven else 0,
        "held_out_tokens": held.tokens if curve.proven else 0,
        "points": rows,
        "knee": {name: _knee(points, knee(gains, memory, slower)) for name, gains in by_name.items()},
    }


def _knee(points: Sequence[Point], index: int | None) -> dict[str, int] | None:
    """Which point it is; None: zero redundancy is best."""
    if index is None:
        return None
    layout = points[index].layout
    return {"point": index, "slots_per_rank": layout.most, "extra_slots_per_rank": layout.extra}


def _point(curve: Curve, index: int, room: KvRoom, imbalance: Gain, seconds: Gain) -> dict[str, Any]:
    point, shape, fewest = curve.points[index], curve.session.shape, curve.points[0].layout.most
    figures, fitted = point.outcome.section(shape), point.best.outcome.section(shape)
    most = point.layout.most
    return {
        "slots_per_rank": most,
        "extra_slots_per_rank": point.layout.extra,
        "policy": point.best.plan.policy,
        **{name: figures[name] for name in FIGURES},
        "fit": {name: fitted[name] for name in ("rank_imbalance", "step_us")},
        "kv_tokens_lost": room.tokens_lost(most - fewest, shape),
        "kv_tokens_left": room.tokens_left(most, shape),
        "gain": {"imbalance_p99": _gain(imbalance), "step_us_p99": _gain(seconds)},
    }


def _per_layer(curve: Curve, budget: LayerBudget, room: KvRoom) -> dict[str, Any]:
    """The row of slots by layer beside its uniform point."""
    points, shape, layers = curve.points, curve.session.shape, curve.session.meta.layers
    slots = [points[level].layout.most for level in budget.level.tolist()]
    mean, figures = sum(slots) / len(slots), budget.outcome.section(shape)
    before = points[0].outcome
    return {
        "slots_per_rank": dict(zip(map(str, layers), slots, strict=True)),
        **{name: figures[name] for name in BY_LAYER_FIGURES},
        "memory_bytes_per_rank": sum(slots) * shape.expert_bytes,
        "kv_tokens_lost": room.tokens_lost(mean - points[0].layout.most, shape),
        "kv_tokens_left": room.tokens_left(mean, shape),
        "gain": {
            "imbalance_p99": _gain(_imbalance_gain(before, budget.outcome)),
            "step_us_p99": _gain(_seconds_gain(before, budget.outcome)),
        },
    }


def _imbalance_gain(before: Outcome, after: Outcome) -> Gain:
    return gain(before.window_imbalance, after.window_imbalance, before.windows)


def _seconds_gain(before: Outcome, after: Outcome) -> Gain:
    """In microseconds; differences under the model's own tie are none."""
    return gain(before.step_seconds() * 1e6, after.step_seconds() * 1e6, before.windows, TIE_FRAC)


def _step_p99(outcome: Outcome) -> float:
    """In microseconds."""
    return float(np.quantile(outcome.step_seconds(), 0.99)) * 1e6


def _gain(one: Gain) -> dict[str, float | bool | None]:
    noise = None if math.isnan(one.noise) else round(one.noise, 6)
    return {"saved": round(one.saved, 6), "noise": noise, "counts": one.counts}
