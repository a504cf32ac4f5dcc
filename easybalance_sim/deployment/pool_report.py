"""What a report says of a pool: its cluster and plans, and what a run made of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from easybalance_sim.deployment.prepare import Prepared
from easybalance_sim.deployment.stations import Station
from easybalance_sim.simulate.serving.pool_run import PoolRun, Timeline
from easybalance_sim.simulate.serving.results import PoolUse

PARTS = ("attention", "outside", "dispatch", "expert", "combine", "hidden")
LOST = ("dispatch", "expert", "combine")


def pool_section(prepared: Prepared, place: int) -> dict[str, Any]:
    """The cluster of a pool, its limits, and the plans that it is served with."""
    before, after = prepared.before[place], prepared.after[place]
    pool, session = after.pool, after.session
    lost = before.kv_tokens - after.kv_tokens
    return {
        "role": pool.role,
        "gpus": pool.gpus,
        "ranks": session.topology.ranks,
        "nodes": session.topology.nodes,
        "data_ranks": pool.data_ranks,
        "expert_tensor": pool.engine.expert_tensor,
        "profile": session.topology.profile,
        "dispatch": session.bench.rule,
        "all_to_all": session.bench.mode,
        "cost": {
            "label": after.label.partition(" · band")[0],
            "band_p90": after.model.band_p90,
            "reasons": list(after.model.reasons),
        },
        "limits": {name: getattr(after.limits, name) for name in after.limits.__dataclass_fields__},
        "kv_given": bool(pool.engine.kv_blocks),
        "kv_lost": {"tokens": lost, "share": lost / before.kv_tokens},
        "before": _plan(before),
        "after": _plan(after),
        "candidates": _candidates(prepared, place),
    }


def _candidates(prepared: Prepared, place: int) -> list[dict[str, Any]]:
    """The plan before and those that competed with it, none where the scenario names the plan."""
    if not prepared.choices:
        return []
    choice = prepared.choices[place]
    return [
        {
            "policy": one.policy,
            "mean_time_ms": 1e3 * one.time_s,
            "refused": one.refused_frac,
            "taken": at == choice.taken,
        }
        for at, one in enumerate(choice.candidates)
    ]


def served_section(run: PoolRun, use: PoolUse, station: Station, from_s: float, to_s: float) -> dict[str, Any]:
    """What a run made of a pool. Shares are of the seconds of its steps; from_s, to_s: while scored requests come."""
    seconds, step_s = run.seconds, max(run.step_s, 1e-12)
    lost = {part: use.lost_s[f"lost_{part}"] / step_s for part in LOST}
    busy = use.busy_frac
    return {
        "role": station.pool.role,
        "steps": run.steps,
        **_steps(run.timeline, from_s, to_s),
        "prompt_tokens": run.prompt_tokens,
        "decode_tokens": run.decode_tokens,
        "computed_again_tokens": run.dropped_tokens,
        "seconds": {**seconds, "steps": run.step_s, "run": run.end_s},
        "share": {part: seconds[part] / step_s for part in PARTS},
        "lost_share": sum(lost.values()),
        "lost_share_by_part": lost,
        "balanced_speedup": use.balanced_speedup,
        "idle_share": use.idle_frac,
        "busy": {"min": float(busy.min()), "mean": float(busy.mean()), "max": float(busy.max())},
        "busy_by_rank": busy.tolist(),
        "kv_tokens": station.kv_tokens,
        "kv_in_use": {"mean": use.kv_frac, "max": use.kv_peak_frac},
        "running": {"mean": use.running, "max": float(run.timeline.running.max())},
        "waiting": {"mean": use.waiting, "max": float(run.timeline.waiting.max())},
        "waited_share": use.waited_frac,
        "refused": int(run.refused.sum()),
        "never_fit": run.too_long,
        "preemptions": use.preemptions,
        "littles_law": _little(run),
        "timeline": _timeline(run.timeline),
    }


def _steps(line: Timeline, from_s: float, to_s: float) -> dict[str, Any]:
    """Mean steps while scored requests come, and whether the queue grew all the while: it is twice as long in the last
    quarter as in the second, and one request per rank at least."""
    at = np.arange(len(line.steps)) * line.bucket_s if np.isfinite(line.bucket_s) else np.zeros(len(line.steps))
    inside = (at >= min(from_s, at[-1])) & (at < to_s)
    steps = max(1, int(line.steps[inside].sum()))
    queue = np.array_split(line.waiting[inside], 4)
    late, early = (float(part.mean()) if len(part) else 0.0 for part in (queue[3], queue[1]))
    return {
        "step_ms": float(1e3 * line.step_s[inside].sum() / steps),
        "step_tokens": float(line.tokens[inside].sum() / steps),
        "queue_grew": bool(late > 2 * early and late > line.busy_s.shape[1]),
    }


def _plan(station: Station) -> dict[str, Any]:
    plan, memory = station.plan, station.memory
    return {
        "policy": plan.policy,
        "slots": plan.slots,
        "redundant_slots": plan.redundant_slots,
        "slots_per_rank": int(plan.slots_per_rank.max()),
        "kv_tokens": station.kv_tokens,
        "memory_bytes": None
        if memory is None
        else {name: getattr(memory, name) for name in memory.__dataclass_fields__ if name != "token_bytes"},
    }


def _little(run: PoolRun) -> dict[str, float]:
    """Requests in the system on average, and arrivals per second times the mean time in it: the engine has checked that
    they agree."""
    came = max(1, run.arrived - int(run.refused.sum()))
    span = max(run.end_s, 1e-12)
    return {
        "present": run.present_s / span,
        "arrivals_per_s": came / span,
        "time_in_system_s": run.present_s / came,
    }


def _timeline(line: Timeline) -> list[dict[str, float]]:
    """Bucket by bucket, those without a step left out."""
    found = []
    for at in np.flatnonzero(line.steps):
        length = line.bucket_s if np.isfinite(line.bucket_s) else float(line.step_s[at])
        busy = line.busy_s[at] / length
        found.append(
            {
                "from_s": float(at * length),
                "steps": int(line.steps[at]),
                "tokens_per_s": float(line.tokens[at] / length),
                "step_ms": float(1e3 * line.step_s[at] / line.steps[at]),
                "running": float(line.running[at]),
                "waiting": float(line.waiting[at]),
                "kv_in_use": float(line.kv_frac[at]),
                "busy_min": float(busy.min()),
                "busy_mean": float(busy.mean()),
                "busy_max": float(busy.max()),
            }
        )
    return found
