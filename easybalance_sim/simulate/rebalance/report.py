"""What a control loop cost and gained, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.simulate.rebalance.loop import Course, Piece, Replan
from easybalance_sim.simulate.rebalance.serving import Service

HOUR_S = 3600.0
POINTS = (50, 95, 99)
MOST_TIMES = 400
"""Points of a course over time; neighbouring windows share one where there are more."""


def course_section(course: Course, baseline: Course, service: Service) -> dict[str, Any]:
    """The JSON section of one control loop; baseline: the one that never re-plans.

    seconds: of serving all windows, pauses included · saved_s_per_hour: against the baseline, of its hours · step_us:
    without pauses, and as a request sees them · break_even_steps: between two re-plans at which their mean pause is
    earned back against the baseline, null when nothing is saved · timeline: see `timeline_section`.
    """
    total, reference = served_seconds(course), served_seconds(baseline)
    values, weights = steps_of(course.pieces)
    paused_values, paused_weights = with_pauses(course.pauses, values, weights)
    return {
        "policy": course.controller.name,
        "seconds": total,
        "saved_s_per_hour": (reference - total) / (reference / HOUR_S),
        "step_us": _points(values, weights),
        "step_us_with_pauses": _points(paused_values, paused_weights),
        "rank_imbalance": _imbalance(course.pieces),
        "replans": len(course.replans),
        "oscillations": sum(replan.oscillates for replan in course.replans),
        "moves": sum(replan.moves for replan in course.replans),
        "bytes": sum(replan.bytes for replan in course.replans),
        "transfer_s": sum(replan.transfer_s for replan in course.replans),
        "pauses": len(course.pauses),
        "pause_s": sum(course.pauses),
        "longest_pause_s": max(course.pauses, default=0.0),
        "break_even_steps": _break_even(course, baseline),
        "staging_bytes": max((replan.staging_slots for replan in course.replans), default=0) * service.expert_bytes,
        "alarms": list(getattr(course.controller, "alarms", [])),
        "events": [event_section(replan) for replan in course.replans],
        "timeline": timeline_section(course.pieces),
    }


def timeline_section(pieces: Sequence[Piece]) -> dict[str, list[float | None]]:
    """step_us, rank_imbalance: means over steps (and layers with traffic) of each of `times_of` the windows served,
    null where no layer has traffic."""
    window = np.array([piece.window for piece in pieces])
    place = np.searchsorted(times_of(window), window, side="right") - 1
    steps = np.array([piece.steps for piece in pieces])
    seconds = np.bincount(place, [piece.seconds for piece in pieces]) / np.bincount(place, steps)
    ratio = np.stack([piece.imbalance for piece in pieces])
    known = np.isfinite(ratio)
    weight = np.bincount(place, known.sum(axis=1) * steps)
    total = np.bincount(place, np.where(known, ratio, 0.0).sum(axis=1) * steps)
    return {
        "step_us": [1e6 * float(one) for one in seconds],
        "rank_imbalance": [float(one / all_) if all_ else None for one, all_ in zip(total, weight, strict=True)],
    }


def times_of(windows: IntArray) -> IntArray:
    """int64[T ≤ MOST_TIMES] first window of each point of a timeline. windows: numbers of those served, in order."""
    first, last = int(windows[0]), int(windows[-1])
    every = -(-(last + 1 - first) // MOST_TIMES)
    return np.arange(first, last + 1, every)


def event_section(replan: Replan) -> dict[str, Any]:
    """One change of plan: what it took, and the steps that its plan served with it and as they would have been without.

    saved_s: of these steps against the plan before, less the pauses · step_p99_us, step_p99_us_without: of them, null
    when the next change came first.
    """
    pause_s = sum(replan.pauses)
    found: dict[str, Any] = {
        "window": replan.window,
        "moves": replan.moves,
        "bytes": replan.bytes,
        "transfer_s": replan.transfer_s,
        "pause_s": pause_s,
        "staging_slots": replan.staging_slots,
        "oscillates": replan.oscillates,
        "steps": sum(piece.steps for piece in replan.pieces),
        "saved_s": -pause_s,
        "step_p99_us": None,
        "step_p99_us_without": None,
    }
    if not replan.pieces:
        return found
    values, weights = steps_of(replan.pieces)
    without = np.concatenate([piece.without_s for piece in replan.pieces if piece.without_s is not None])
    return found | {
        "saved_s": float(((without - values) * weights).sum()) - pause_s,
        "step_p99_us": 1e6 * weighted_quantile(values, weights, 0.99),
        "step_p99_us_without": 1e6 * weighted_quantile(without, weights, 0.99),
    }


def served_seconds(course: Course) -> float:
    """Seconds of all steps and pauses."""
    return sum(piece.seconds for piece in course.pieces) + sum(course.pauses)


def steps_of(pieces: Sequence[Piece]) -> tuple[FloatArray, FloatArray]:
    """float64[pieces · D] seconds of drawn steps and how many steps each stands for."""
    weights = [np.full(len(piece.step_s), piece.steps / len(piece.step_s)) for piece in pieces]
    return np.concatenate([piece.step_s for piece in pieces]), np.concatenate(weights)


def with_pauses(pauses: Sequence[float], values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same steps with one more for each pause, which takes that much longer than the mean step."""
    usual = float(np.average(values, weights=weights))
    longer = np.array([usual + pause for pause in pauses])
    return np.concatenate([values, longer]), np.concatenate([weights, np.ones(len(longer))])


def weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    """The smallest value that at least `share` of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # Rounding may leave the sum of all weights a hair short of itself.
    return float(values[order][min(np.searchsorted(reached, share * reached[-1]), len(values) - 1)])


def break_even_steps(pause_s: float, step_before_s: float, step_after_s: float) -> float | None:
    """Steps between two re-plans at which their pause is earned back, None when nothing is saved.

    pause_s: that one re-plan costs · step_before_s, step_after_s: seconds of a step without and with re-planning.
    """
    saved = step_before_s - step_after_s
    return pause_s / saved if saved > 0 else None


def _points(values: FloatArray, weights: FloatArray) -> dict[str, float]:
    return {f"p{point}": 1e6 * weighted_quantile(values, weights, point / 100) for point in POINTS}


def _imbalance(pieces: Sequence[Piece]) -> dict[str, float]:
    """Mean and P99 over steps × layers with traffic."""
    ratio = np.stack([piece.imbalance for piece in pieces])
    weights = np.broadcast_to(np.array([[piece.steps] for piece in pieces]), ratio.shape)
    known = np.isfinite(ratio) & (weights > 0)
    mean = float(np.average(ratio[known], weights=weights[known]))
    return {"mean": mean, "p99": weighted_quantile(ratio[known], weights[known], 0.99)}


def _break_even(course: Course, baseline: Course) -> float | None:
    if not course.replans:
        return None
    steps = sum(piece.steps for piece in course.pieces)
    paused = sum(course.pauses)
    after, before = (served_seconds(course) - paused) / steps, served_seconds(baseline) / steps
    return break_even_steps(paused / len(course.replans), before, after)
