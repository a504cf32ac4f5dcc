"""What a control loop cost and gained, in numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray
from easybalance_sim.simulate.rebalance.loop import Course
from easybalance_sim.simulate.rebalance.serving import Service

HOUR_S = 3600.0
POINTS = (50, 95, 99)


def course_section(course: Course, baseline: Course, service: Service) -> dict[str, Any]:
    """The JSON section of one control loop; baseline: the one that never re-plans.

    seconds: of serving all windows, pauses included · saved_s_per_hour: against the baseline, of its hours · step_us:
    without pauses, and as a request sees them · break_even_steps: between two re-plans at which the mean pause is
    earned back against the baseline, null when nothing is saved.
    """
    total, reference = served_seconds(course), served_seconds(baseline)
    values, weights = steps_of(course)
    paused_values, paused_weights = with_pauses(course, values, weights)
    imbalance = np.concatenate([ratio[np.isfinite(ratio)] for ratio in course.imbalance])
    pauses = [pause for _, pause in course.pauses]
    return {
        "policy": course.controller.name,
        "seconds": total,
        "saved_s_per_hour": (reference - total) / (reference / HOUR_S),
        "step_us": {f"p{point}": 1e6 * weighted_quantile(values, weights, point / 100) for point in POINTS},
        "step_us_with_pauses": {
            f"p{point}": 1e6 * weighted_quantile(paused_values, paused_weights, point / 100) for point in POINTS
        },
        "rank_imbalance": {"mean": float(imbalance.mean()), "p99": float(np.quantile(imbalance, 0.99))},
        "replans": len(course.replans),
        "oscillations": sum(replan.oscillates for replan in course.replans),
        "moves": sum(replan.moves for replan in course.replans),
        "bytes": sum(replan.bytes for replan in course.replans),
        "transfer_s": sum(replan.transfer_s for replan in course.replans),
        "pauses": len(pauses),
        "pause_s": sum(pauses),
        "longest_pause_s": max(pauses, default=0.0),
        "break_even_steps": _break_even(course, baseline),
        "staging_bytes": max((r.staging_slots for r in course.replans), default=0) * service.expert_bytes,
        "alarms": list(getattr(course.controller, "alarms", [])),
        "events": [asdict(replan) for replan in course.replans],
    }


def served_seconds(course: Course) -> float:
    """Seconds of all steps and pauses."""
    served = sum(float(s.mean()) * steps for s, steps in zip(course.step_s, course.steps, strict=True))
    return served + sum(pause for _, pause in course.pauses)


def steps_of(course: Course) -> tuple[FloatArray, FloatArray]:
    """float64[W·D] seconds of drawn steps and how many steps each stands for."""
    weights = [np.full(len(s), steps / len(s)) for s, steps in zip(course.step_s, course.steps, strict=True)]
    return np.concatenate(course.step_s), np.concatenate(weights)


def with_pauses(course: Course, values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same with one step for each pause, which takes as much longer."""
    if not course.pauses:
        return values, weights
    usual = float(np.average(values, weights=weights))
    paused = np.array([usual + pause for _, pause in course.pauses])
    return np.concatenate([values, paused]), np.concatenate([weights, np.ones(len(paused))])


def weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    """The smallest value that at least `share` of the weight does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])


def _break_even(course: Course, baseline: Course) -> float | None:
    if not course.replans:
        return None
    steps = sum(course.steps)
    paused = sum(pause for _, pause in course.pauses)
    after, before = (served_seconds(course) - paused) / steps, served_seconds(baseline) / steps
    return break_even_steps(paused / len(course.replans), before, after)


def break_even_steps(pause_s: float, step_before_s: float, step_after_s: float) -> float | None:
    """Steps between two re-plans at which their pause is earned back, None when nothing is saved.

    pause_s: that one re-plan costs · step_before_s, step_after_s: seconds of a step without and with re-planning.
    """
    saved = step_before_s - step_after_s
    return pause_s / saved if saved > 0 else None
