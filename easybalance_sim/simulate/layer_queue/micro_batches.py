"""Recorded steps cut into micro-batches: requests are dealt to lanes, which run beside one another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from easybalance_sim.arrays import FloatArray, Int32Array, IntArray, frozen, sealed
from easybalance_sim.errors import UsageError
from easybalance_sim.plan.plan import Plan
from easybalance_sim.simulate.layer_queue.queue import Jobs
from easybalance_sim.simulate.layer_queue.service import Seconds
from easybalance_sim.simulate.steps.recorded import RecordedSteps, expert_counts, sources


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroBatches:
    """B micro-batches in the order of their steps, lane by lane in a step; those without tokens are left out.

    counts: int32[B, L, E] · home: float64[B, R] tokens of requests at home on each rank · lane: int32[B] · first, last:
    int64[Q] micro-batches in which each request begins and ends.
    """

    counts: Int32Array
    home: FloatArray
    lane: Int32Array
    first: IntArray
    last: IntArray


def cut(steps: RecordedSteps, lanes: int, ranks: int) -> MicroBatches:
    """Every step's tokens by lane. A request keeps the lane that it is dealt when it first appears, in turn.

    Requests without a known source rank are at home on that of their number modulo R. Raises `UsageError` for fewer
    than one lane.
    """
    if lanes < 1:
        raise UsageError(f"{lanes} micro-batches in flight", where="layer queue", fix="give at least 1")
    ids, seen, number = np.unique(steps.request, return_index=True, return_inverse=True)
    dealt = np.argsort(np.argsort(seen)) % lanes
    key = steps.step_of_token * lanes + dealt[number]
    used, batch = np.unique(key, return_inverse=True)
    order = np.argsort(batch, kind="stable")
    start = np.searchsorted(batch[order], np.arange(len(used) + 1))
    rank = sources(steps, ranks)
    home = np.bincount(batch * ranks + rank, minlength=len(used) * ranks).reshape(-1, ranks)
    first, last = np.full(len(ids), len(used)), np.zeros(len(ids), np.int64)
    np.minimum.at(first, number, batch)
    np.maximum.at(last, number, batch)
    return MicroBatches(
        counts=expert_counts(steps.experts[order], start, steps.meta.experts),
        home=sealed(home.astype(np.float64)),
        lane=frozen(np.unique(used % lanes, return_inverse=True)[1], np.int32),
        first=sealed(first),
        last=sealed(last),
    )


def dealt_evenly(counts: Int32Array, plan: Plan) -> Int32Array:
    """int32[B, L, P] assignments of slots when an expert's replicas take turns, the lowest slot first."""
    layer = np.arange(plan.layers)[:, None]
    of_slot, replicas = plan.expert_of_slot, plan.replicas[layer, plan.expert_of_slot]
    turn = np.empty_like(of_slot)
    rows = np.take_along_axis(of_slot, plan.replica_slot, axis=1)
    np.put_along_axis(turn, plan.replica_slot, np.arange(plan.slots) - plan.replica_start[layer, rows], axis=1)
    return frozen((counts[:, layer, of_slot] - turn + replicas - 1) // replicas, np.int32)


def jobs_of(seconds: Seconds, lane: Int32Array, tokens: FloatArray) -> Jobs:
    """Two stages per layer: attention, after which copies travel to the experts; and the experts, after which they
    travel back. On the way a micro-batch occupies no rank; it arrives with its slowest copy."""
    batches, layers, ranks = seconds.expert.shape
    service = np.stack([seconds.attention, seconds.expert], axis=2).reshape(batches, 2 * layers, ranks)
    delay = np.stack([seconds.dispatch.max(axis=2), seconds.combine.max(axis=2)], axis=2)
    return Jobs(service=service, delay=delay.reshape(batches, 2 * layers), lane=lane, tokens=tokens)
