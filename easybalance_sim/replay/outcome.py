"""`Outcome`: what a plan did on a stretch of traffic, and the figures people quote of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.cluster.model_shape import ModelShape
from easybalance_sim.cost.memory import expert_memory_bytes
from easybalance_sim.cost.memory_peak import Peak
from easybalance_sim.plan.bounds import lower_bound
from easybalance_sim.plan.plan import Plan

MATRIX_RANKS = 72
"""Largest matrix that a report prints; one NVL72 rack."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowMarks:
    """Which windows were replayed. ids: int64[w] as in `LoadWindows`, positions of a count trace · steps: int64[w] with
    traffic · assignments: int64[w] of the layer that has most."""

    ids: IntArray
    steps: IntArray
    assignments: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """A plan on traffic.

    tokens, steps: how much · tokens_per_step: mean size of the steps behind `layer_seconds` · window_imbalance:
    float64[w, L] of `tally.imbalance`, NaN without traffic · window_marks: of these windows · window_bound: float64[w,
    L] what no plan with these slots goes below · layer_seconds: float[W, L] by which plans are ranked · layer_bracket:
    float[W, L, 2] with all communication hidden, with none · active_slots: int64[S+1] how often a rank had that many
    active slots, over steps × layers × ranks · phase_share: float64[3] shares of dispatch, expert, combine time ·
    expert_tokens: [L, E] assignments · slot_tokens: [L, P] the same of each slot · rank_pairs: [R, R] and node_pairs:
    [N, N] copies sent · copy_bytes: bytes of one copy, dispatch + combine · peak: of the fullest steps · speed:
    float64[R] of the ranks, None = equal · expected: figures are expectations over counts, not a replay of tokens.
    """

    plan: Plan
    tokens: int
    steps: int
    tokens_per_step: float
    window_imbalance: FloatArray
    window_marks: WindowMarks
    window_bound: FloatArray
    layer_seconds: FloatArray
    layer_bracket: FloatArray
    active_slots: IntArray
    phase_share: FloatArray
    expert_tokens: FloatArray | IntArray
    slot_tokens: FloatArray | IntArray
    rank_pairs: FloatArray | IntArray
    node_pairs: FloatArray | IntArray
    copy_bytes: float
    peak: Peak
    speed: FloatArray | None = None
    expected: bool = False

    @property
    def windows(self) -> int:
        """w."""
        return len(self.window_imbalance)

    @property
    def cross_node_bytes(self) -> float:
        """Bytes that left an NVLink domain, dispatch and combine, all layers and steps."""
        return float(self.node_pairs.sum() - np.trace(self.node_pairs)) * self.copy_bytes

    @property
    def cross_node_bytes_per_token(self) -> float:
        """Bytes per token that left an NVLink domain, over all layers."""
        return self.cross_node_bytes / max(self.tokens, 1)

    def _traffic(self) -> dict[str, list[list[float]]]:
        """Bytes per token from node (rank) to node (rank), over all layers; ranks up to `MATRIX_RANKS`."""
        per_copy = self.copy_bytes / max(self.tokens, 1)
        matrices = {"node_bytes_per_token": self.node_pairs, "rank_bytes_per_token": self.rank_pairs}
        return {
            name: [_rounded(row) for row in pairs * per_copy]
            for name, pairs in matrices.items()
            if len(pairs) <= MATRIX_RANKS
        }

    def step_seconds(self) -> FloatArray:
        """float64[W] MoE seconds of each step: the sum over its layers."""
        seconds: FloatArray = self.layer_seconds.sum(axis=1, dtype=np.float64)
        return seconds

    def _bracket(self) -> dict[str, dict[str, dict[str, float]]]:
        """Seconds between full overlap and none, by layer and by step."""
        layer = {name: self.layer_bracket[..., index] for index, name in enumerate(("full_overlap", "serial"))}
        return {
            "layer_us_bracket": {name: _percentiles(one * 1e6) for name, one in layer.items()},
            "step_us_bracket": {
                name: _percentiles(one.sum(axis=1, dtype=np.float64) * 1e6) for name, one in layer.items()
            },
        }

    def section(self, shape: ModelShape) -> dict[str, Any]:
        """The `plan` / `baseline` object of a report (keys as in the documented JSON)."""
        bound = lower_bound(self.expert_tokens.astype(np.float64), self.plan.ranks, self.plan.slots, self.speed)
        memory = expert_memory_bytes(self.plan.slots_per_rank, shape)
        return {
            "policy": self.plan.policy,
            "rank_imbalance": _imbalance(self.window_imbalance),
            "rank_imbalance_by_layer": _by_layer(self.window_imbalance),
            "layer_us": _percentiles(self.layer_seconds * 1e6),
            "step_us": _percentiles(self.step_seconds() * 1e6),
            **self._bracket(),
            "time_share": dict(zip(("dispatch", "expert", "combine"), _rounded(self.phase_share), strict=True)),
            "cross_node_bytes_per_token": round(self.cross_node_bytes_per_token, 3),
            "traffic": self._traffic(),
            "active_experts_per_rank": _active(self.active_slots),
            "lower_bound_imbalance": round(float(bound.mean()), 6),
            "lower_bound_per_window": {name: _imbalance(self.window_bound)[name] for name in ("mean", "p99")},
            "slots": self.plan.slots,
            "redundant_slots": self.plan.redundant_slots,
            "memory_bytes_per_rank": int(memory.max()),
        }


def _imbalance(ratios: FloatArray) -> dict[str, float]:
    """Over windows × layers."""
    flat = ratios[np.isfinite(ratios)]
    p50, p95, p99 = np.quantile(flat, (0.5, 0.95, 0.99))
    values = (flat.mean(), p50, p95, p99, flat.max())
    return dict(zip(("mean", "p50", "p95", "p99", "max"), _rounded(np.array(values)), strict=True))


def _by_layer(ratios: FloatArray) -> dict[str, list[float]]:
    """Mean and P99 over windows, one number per layer; a layer without any traffic is in perfect balance."""
    known = np.where(np.isfinite(ratios).any(axis=0), ratios, 1.0)
    return {
        "mean": _rounded(np.nanmean(known, axis=0)),
        "p99": _rounded(np.nanquantile(known, 0.99, axis=0)),
    }


def _active(histogram: IntArray) -> dict[str, float]:
    share = histogram / max(int(histogram.sum()), 1)
    return {
        "mean": round(float(share @ np.arange(len(share))), 3),
        "p99": float(np.searchsorted(np.cumsum(share), 0.99)),
    }


def _percentiles(values: FloatArray) -> dict[str, float]:
    return dict(zip(("p50", "p95", "p99"), _rounded(np.quantile(values, (0.5, 0.95, 0.99))), strict=True))


def _rounded(values: FloatArray) -> list[float]:
    return [round(float(value), 6) for value in values]
