"""Where the load of a whole stretch of traffic lies: what a team watches beside the tail of single windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from easybalance_sim.arrays import AnyArray, FloatArray, IntArray
from easybalance_sim.replay.outcome import Outcome
from easybalance_sim.replay.tally import rank_sums


def load_section(layers: tuple[int, ...], node_of_rank: IntArray, before: Outcome, after: Outcome) -> dict[str, Any]:
    """The `load` section of a report: lists have one number per layer, in the order of `layers` (absolute ids).

    node_of_rank: int64[R].
    """
    return {
        "layers": list(layers),
        "expert_imbalance": _rounded(_max_over_mean(after.expert_tokens)),
        "expert_entropy": _rounded(entropy(after.expert_tokens)),
        "baseline": _side(before, node_of_rank),
        "plan": _side(after, node_of_rank),
    }


def entropy(tokens: AnyArray) -> FloatArray:
    """float64[L] Shannon entropy of the experts' shares over that of even ones: 1 = even, 0 = one expert takes all.

    tokens: [L, E]; a layer without traffic counts as even, and so does a single expert.
    """
    share = tokens / np.maximum(tokens.sum(axis=1, keepdims=True), 1)
    bits = -(share * np.log(np.where(share > 0, share, 1.0))).sum(axis=1)
    even = np.log(max(tokens.shape[1], 2))
    found: FloatArray = np.where((tokens.sum(axis=1) > 0) & (tokens.shape[1] > 1), bits / even, 1.0)
    return found


def _side(outcome: Outcome, node_of_rank: IntArray) -> dict[str, Any]:
    ranks = rank_sums(outcome.slot_tokens, outcome.plan)
    nodes = np.stack([np.bincount(node_of_rank, weights=row) for row in ranks])
    return {
        "policy": outcome.plan.policy,
        "node_imbalance": _rounded(_max_over_mean(nodes / np.bincount(node_of_rank))),
        "replica_imbalance": _rounded(_max_over_mean(outcome.slot_tokens)),
        "replicated_experts": [int(count) for count in (outcome.plan.replicas > 1).sum(axis=1)],
        "replica_split": replica_split(outcome),
        "copies_per_token": _copies(outcome),
    }


def replica_split(outcome: Outcome) -> list[float | None]:
    """How evenly the replicas of an expert share its tokens, [L]: those of the busiest replica over the mean of them,
    averaged over the experts with several by their tokens. 1 = even; None where no such expert has a token."""
    plan, tokens = outcome.plan, np.asarray(outcome.slot_tokens, np.float64)
    busiest = np.zeros((plan.layers, plan.experts))
    np.maximum.at(busiest, (np.arange(plan.layers)[:, None], plan.expert_of_slot), tokens)
    several = plan.replicas > 1
    uneven = np.where(several, busiest * plan.replicas, 0.0).sum(axis=1)
    total = np.where(several, outcome.expert_tokens, 0.0).sum(axis=1)
    return [round(float(most / all_), 6) if all_ > 0 else None for most, all_ in zip(uneven, total, strict=True)]


def _copies(outcome: Outcome) -> Mapping[str, float]:
    """Copies of a token over all layers: those that stay in its node, and those that leave it."""
    pairs = np.asarray(outcome.node_pairs, np.float64)
    local = float(np.trace(pairs))
    return {
        "same_node": round(local / max(outcome.tokens, 1), 6),
        "cross_node": round((float(pairs.sum()) - local) / max(outcome.tokens, 1), 6),
    }


def _max_over_mean(values: AnyArray) -> FloatArray:
    """[L] of [L, n]; 1 for a layer without traffic."""
    mean = values.mean(axis=1)
    found: FloatArray = np.where(mean > 0, values.max(axis=1) / np.where(mean > 0, mean, 1), 1.0)
    return found


def _rounded(values: FloatArray) -> list[float]:
    return [round(float(value), 6) for value in values]
