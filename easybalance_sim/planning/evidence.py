"""Puts what a replay showed into the report, and the report before the gate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from easybalance_sim.cost.network import SKEWED_TRAFFIC
from easybalance_sim.gate.criteria import Criteria
from easybalance_sim.gate.judge import judge
from easybalance_sim.gate.verdict import Verdict
from easybalance_sim.plan.migration import migration
from easybalance_sim.plan.plan import Plan
from easybalance_sim.planning.maps import maps_section
from easybalance_sim.planning.memory import memory_section
from easybalance_sim.planning.monitoring import load_section
from easybalance_sim.planning.session import Listener, Session
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.traffic import Traffic
from easybalance_sim.trace.dataset import TokenTrace


def assemble(
    session: Session,
    traffic: Traffic,
    before: Outcome,
    after: Outcome,
    floor: Outcome,
    split: Mapping[str, Any],
) -> dict[str, Any]:
    """The report of `after` (the plan) against `before` (the baseline) on one side of `traffic`, still without verdict.

    floor: a plan made from that traffic, `after` where that is better · split: settings and window numbers of the run.
    Keys are the documented JSON; every number is finite.
    """
    baseline, plan, made_for_it = (outcome.section(session.shape) for outcome in (before, after, floor))
    if plan["rank_imbalance"]["mean"] < made_for_it["rank_imbalance"]["mean"]:
        made_for_it = plan
    cost = session.bench.cost(after.plan)
    return {
        "trace": trace_section(session),
        "split": {**split, "held_out_tokens": after.tokens if split["held_out_windows"] else 0},
        "cluster": {
            "ranks": session.topology.ranks,
            "nodes": session.topology.nodes,
            "slots_per_rank": int(session.topology.slots_per_rank.max()),
            "slots": session.topology.slots,
            "profile": session.topology.profile,
        },
        "model": {
            "name": session.shape.name,
            "expert_bytes": session.shape.expert_bytes,
            "assumed": session.shape.assumed,
        },
        "dispatch": session.bench.rule,
        "cost": {
            "label": cost.label,
            "calibrated": cost.calibrated and not session.shape.assumed,
            "all_to_all": session.bench.mode,
            "phase": session.phase,
            "mixed_phases": session.mixes_phases,
            "overlap": cost.overlap,
            "communication": SKEWED_TRAFFIC,
            "band_p90": round(cost.band_p90, 4),
            "expected_values": after.expected,
        },
        "baseline": baseline,
        "plan": plan,
        "floor": {name: made_for_it[name] for name in ("policy", "rank_imbalance", "rank_imbalance_by_layer")},
        "gain": {
            "share_of_possible": _share(baseline, plan, plan["lower_bound_per_window"]),
            "share_of_floor": _share(baseline, plan, made_for_it["rank_imbalance"]),
        },
        "load": load_section(session.meta.layers, session.topology.node_of_rank, before, after),
        "maps": maps_section(session, before, after, traffic.leading),
        "memory": memory_section(session, before, after),
        "migration": dict(migration_between(session, before.plan, after.plan)),
    }


def with_verdict(report: dict[str, Any], criteria: Criteria) -> tuple[dict[str, Any], Verdict]:
    """The report with its `verdict` section, and the verdict."""
    verdict = judge(report, criteria)
    return {**report, "verdict": verdict.to_dict()}, verdict


def migration_between(session: Session, old: Plan, new: Plan) -> Mapping[str, int | float]:
    """The `migration` section: what going from `old` to `new` moves on this cluster, or from what is left of `old`."""
    return migration(
        old,
        new,
        expert_bytes=session.shape.expert_bytes,
        node_of_rank=session.topology.node_of_rank,
        nvlink_bytes_per_s=session.hardware.migration.nvlink_bytes_per_s,
        network_bytes_per_s=session.hardware.migration.cross_node_bytes_per_s,
        held=session.held,
    ).to_dict()


def trace_section(session: Session) -> dict[str, Any]:
    """The `trace` section of a report."""
    meta, trace = session.meta, session.trace
    return {
        "kind": meta.kind,
        "model": meta.model,
        "files": [str(path) for path in trace.paths],
        "fingerprint": session.trace_fingerprint,
        "tokens": trace.scan().tokens if isinstance(trace, TokenTrace) else int(trace.batch_tokens.sum()),
        "steps": trace.scan().steps if isinstance(trace, TokenTrace) else len(trace.tokens),
        "layers": len(meta.layers),
        "experts": meta.experts,
        "top_k": meta.top_k,
    }


def _share(baseline: Mapping[str, Any], plan: Mapping[str, Any], least: Mapping[str, float]) -> float | None:
    """Mean imbalance saved over what `least` would save; None when nothing can be."""
    most = baseline["rank_imbalance"]["mean"] - least["mean"]
    saved: float = baseline["rank_imbalance"]["mean"] - plan["rank_imbalance"]["mean"]
    return round(saved / most, 4) if most > 1e-9 else None


def tell_if_thinned(traffic: Traffic, tell: Listener) -> None:
    """A note when the windows of a long trace are not all counted; every token is replayed all the same."""
    every = traffic.counted_every()
    if every > 1:
        tell.note(f"the trace is long: loads are counted in one of {every} windows (held-out tokens are all replayed)")


class Stopwatch:
    """Seconds of the stages of a run, one after the other: the `timing_s` section of a report."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """The stage `name` ends here."""
        now = time.perf_counter()
        self._laps[name] = now - self._last
        self._last = now

    def laps(self) -> dict[str, float]:
        """Rounded seconds by stage, and their total."""
        rounded = {name: round(value, 3) for name, value in self._laps.items()}
        return {**rounded, "total": round(sum(self._laps.values()), 3)}
