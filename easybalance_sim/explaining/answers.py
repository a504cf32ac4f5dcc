"""The answers of `ebsim explain`: the whole plan, a layer, a rank, an expert, as documented JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from easybalance_sim.arrays import FloatArray, IntArray
from easybalance_sim.cluster.topology import Topology
from easybalance_sim.explaining.changes import Change, Layer
from easybalance_sim.explaining.load import Load
from easybalance_sim.plan.bounds import window_bound
from easybalance_sim.plan.plan import Plan
from easybalance_sim.plan.planfile import PlanDocument
from easybalance_sim.replay.expected import even_imbalance, even_rank_tokens

MOST_EXPERTS = 10
"""Of the most replicated ones that an overview names."""
LOAD_KEYS = ("share", "over_mean", "place", "peak_over_mean", "peak_place", "fills_ranks", "replica_fills_ranks")
"""Of an expert, null without a trace."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    """A plan, the cluster it is for, and its load, None when no trace was given."""

    document: PlanDocument
    plan: Plan
    topology: Topology
    load: Load | None

    def overview(self) -> dict[str, Any]:
        """Who is replicated most, and which layers have most excess."""
        counts = np.bincount(self.plan.replicas.ravel())
        return {
            "replicas": [{"replicas": int(n), "experts": int(counts[n])} for n in np.flatnonzero(counts)],
            "experts": [self._expert_row(row, expert) for row, expert in self._most_replicated()],
            "layers": sorted(map(self._layer_row, range(self.plan.layers)), key=_excess, reverse=True),
            "judged": _judged(self.document.evidence),
        }

    def layer(self, row: int) -> dict[str, Any]:
        """Experts of a layer, the busiest first, and its ranks."""
        experts = [self._expert_row(row, expert) for expert in self._by_load(row)]
        return {
            **self._layer_row(row),
            "experts": experts,
            "ranks": [self._rank_row(row, rank) for rank in range(self.plan.ranks)],
        }

    def rank(self, rank: int, rows: tuple[int, ...]) -> dict[str, Any]:
        """What a rank holds in these layers, and how busy it is there."""
        layers = [{"layer": self.document.layer_ids[row], **self._rank_row(row, rank)} for row in rows]
        known = [layer["over_mean"] for layer in layers if layer["over_mean"] is not None]
        return {
            "slots": int(self.plan.slots_per_rank[rank]),
            "speed": float(self.topology.speed[rank]),
            "over_mean": round(float(np.mean(known)), 6) if known else None,
            "busiest_in": sum(layer["place"] == 1 for layer in layers) if known else None,
            "layers": layers,
        }

    def expert(self, row: int, expert: int) -> dict[str, Any]:
        """Its load, its replicas, their company, and what one fewer or more would do."""
        ranks = self._ranks_of(row, expert)
        holders = [self._rank_row(row, rank, without=expert) for rank in ranks]
        facts = {**self._expert_row(row, expert), "holders": holders}
        if self.load is None:
            return {**facts, "rank_imbalance": None, "lower_bound": None, "one_fewer": None, "one_more": None}
        layer = Layer.of(self.plan, row, self.load.tokens, self.topology.speed)
        mean, p99 = layer.imbalance()
        return {
            **facts,
            "rank_imbalance": {"mean": round(mean, 6), "p99": round(p99, 6)},
            "lower_bound": self._bound[row],
            "one_fewer": self._change(layer.one_fewer(expert), mean),
            "one_more": self._change(layer.one_more(expert), mean),
        }

    def _change(self, change: Change | None, mean: float) -> dict[str, Any] | None:
        if change is None:
            return None
        return {
            "rank": change.rank,
            "node": int(self.topology.node_of_rank[change.rank]),
            "leaves": change.leaves,
            "comes": change.comes,
            "rank_imbalance": {"mean": round(change.mean, 6), "p99": round(change.p99, 6)},
            "growth": round(change.mean / mean - 1, 6),
        }

    def _expert_row(self, row: int, expert: int) -> dict[str, Any]:
        facts = {
            "layer": self.document.layer_ids[row],
            "expert": expert,
            "replicas": int(self.plan.replicas[row, expert]),
            "ranks": self._ranks_of(row, expert),
        }
        return {**facts, **self._load_of_expert(row, expert)}

    def _load_of_expert(self, row: int, expert: int) -> dict[str, Any]:
        """share: of the layer's assignments · fills_ranks: its load over that of a mean rank."""
        if self.load is None:
            return dict.fromkeys(LOAD_KEYS)
        share = float(self.load.over_mean[row, expert]) / self.plan.experts
        fills = share * self.plan.ranks
        return {
            "share": round(share, 6),
            "over_mean": round(share * self.plan.experts, 6),
            "place": int(self.load.place[row, expert]),
            "peak_over_mean": round(float(self.load.peak[row, expert]), 6),
            "peak_place": int(self.load.peak_place[row, expert]),
            "fills_ranks": round(fills, 6),
            "replica_fills_ranks": round(fills / int(self.plan.replicas[row, expert]), 6),
        }

    def _rank_row(self, row: int, rank: int, without: int = -1) -> dict[str, Any]:
        """A rank in a layer with its experts, the one with most load there first."""
        held = [int(one) for one in self.plan.expert_of_slot[row, self.plan.rank_of_slot == rank] if one != without]
        experts = [
            {
                "expert": one,
                "replicas": int(self.plan.replicas[row, one]),
                "replica_fills_ranks": self._load_of_expert(row, one)["replica_fills_ranks"],
            }
            for one in held
        ]
        experts.sort(key=lambda one: (-(one["replica_fills_ranks"] or 0.0), -one["replicas"], one["expert"]))
        busy = self._rank_over_mean
        return {
            "rank": rank,
            "node": int(self.topology.node_of_rank[rank]),
            "over_mean": None if busy is None else round(float(busy[row, rank]), 6),
            "place": None if busy is None else int((busy[row] > busy[row, rank]).sum()) + 1,
            "experts": experts,
        }

    def _layer_row(self, row: int) -> dict[str, Any]:
        """Imbalance of a layer under the load, its bound, and what the plan's own evidence says of it."""
        mean = None if self._imbalance is None else self._imbalance[row]
        return {
            "layer": self.document.layer_ids[row],
            "rank_imbalance": mean,
            "lower_bound": None if mean is None else self._bound[row],
            "held_out": {name: _of_layer(self.document.evidence, name, row) for name in ("baseline", "plan", "floor")},
        }

    def _ranks_of(self, row: int, expert: int) -> list[int]:
        ranks: list[int] = self.plan.rank_of_slot[self.plan.expert_of_slot[row] == expert].tolist()
        return ranks

    def _by_load(self, row: int) -> list[int]:
        weight: IntArray | FloatArray = self.plan.replicas[row] if self.load is None else self.load.total[row]
        order: list[int] = np.argsort(-weight, kind="stable").tolist()
        return order

    def _most_replicated(self) -> list[tuple[int, int]]:
        """(row, expert), those with replicas alone; equal ones by their load."""
        load = np.zeros(self.plan.replicas.shape) if self.load is None else self.load.over_mean
        order = np.lexsort((-load.ravel(), -self.plan.replicas.ravel()))[:MOST_EXPERTS]
        rows, experts = np.unravel_index(order, self.plan.replicas.shape)
        pairs = zip(rows.tolist(), experts.tolist(), strict=True)
        return [(row, expert) for row, expert in pairs if self.plan.replicas[row, expert] > 1]

    @cached_property
    def _rank_over_mean(self) -> FloatArray | None:
        """float64[L, R] load of ranks over all windows, time of a slow rank counted as load; None without a load."""
        if self.load is None:
            return None
        tokens = even_rank_tokens(self.load.total[None], self.plan)[0] / self.topology.speed
        mean = tokens.mean(axis=1, keepdims=True)
        ratio: FloatArray = np.divide(tokens, mean, out=np.ones(tokens.shape), where=mean > 0)
        return ratio

    @cached_property
    def _imbalance(self) -> list[float] | None:
        """Mean over windows of every layer."""
        if self.load is None:
            return None
        return _means(even_imbalance(self.load.tokens, self.plan, self.topology.speed))

    @cached_property
    def _bound(self) -> list[float]:
        """What no plan with these slots goes below, in the mean over windows."""
        tokens = np.zeros((0, 0, 0)) if self.load is None else self.load.tokens
        return _means(window_bound(tokens, self.plan.slots_per_rank, self.topology.speed, whole=False))


def _means(ratios: FloatArray) -> list[float]:
    known = np.where(np.isfinite(ratios).any(axis=0), ratios, 1.0)
    return [round(float(one), 6) for one in np.nanmean(known, axis=0)]


def _excess(layer: Mapping[str, Any]) -> float:
    """By which layers are sorted: over the bound, or what was held out over the floor."""
    if layer["rank_imbalance"] is not None:
        return float(layer["rank_imbalance"] - layer["lower_bound"])
    return float(layer["held_out"]["plan"] or 1.0) - float(layer["held_out"]["floor"] or 1.0)


def _of_layer(evidence: Mapping[str, Any], side: str, row: int) -> float | None:
    """Mean held-out imbalance of a layer, None in a plan without evidence."""
    means = evidence.get(side, {}).get("rank_imbalance_by_layer", {}).get("mean", [])
    return float(means[row]) if row < len(means) else None


def _judged(evidence: Mapping[str, Any]) -> dict[str, float] | None:
    """Mean held-out imbalance of baseline, plan, floor, and its bound, those that there are; None in a plan without
    evidence."""
    found = {
        name: evidence.get(name, {}).get("rank_imbalance", {}).get("mean") for name in ("baseline", "plan", "floor")
    }
    found["lower_bound"] = evidence.get("plan", {}).get("lower_bound_per_window", {}).get("mean")
    return {name: float(mean) for name, mean in found.items() if mean is not None} or None
